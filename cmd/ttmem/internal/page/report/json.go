package report

import (
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

// Document is the output of `ttmem report --json`, and of run and attach with --json: a snapshot, with the
// leaks and the contents of the peaks.
type Document struct {
	memory.Snapshot
	// Summary is the answer in one sentence: what failed, what leaked, which region is fullest, and where
	// L1 is tightest. It is left out if nothing was allocated.
	Summary string `json:"summary,omitempty"`
	// CutShort is true if the recording's end is missing.
	CutShort bool `json:"cut_short,omitempty"`
	// Leaks are the call sites that leak, most bytes first.
	Leaks []table.Object[site] `json:"leaks"`
	// Undecided are the call sites that grew, but have too few buffers to judge.
	Undecided []table.Object[site] `json:"undecided"`
	// Retained is what the runtime retains, where it grows or fills over a quarter of a region.
	Retained []retainedMemory `json:"retained"`
	// Padding is the padding of tiles in each region that has any, as far as it is known.
	Padding []paddedRegion `json:"padding"`
	// LateFrees is what lowers the peaks of DRAM and L1 if it is freed after its last use: see ttmem advise. It is left
	// out for a recording of more than 1 MiB, and for running processes.
	LateFrees []lateFree `json:"late_frees,omitempty"`
	// Temporary are buffers that were freed soon.
	Temporary temporaryBuffers `json:"temporary"`
	// Peaks are the regions of chips that were used, each with its largest call sites.
	Peaks []peak `json:"peaks"`
}

// retainedMemory is memory of one kind that the runtime retains in a region.
type retainedMemory struct {
	Kind    string `json:"kind"`
	Region  string `json:"region" schema:"region"`
	Count   uint64 `json:"count"`
	Bytes   uint64 `json:"bytes"`
	Growing bool   `json:"growing"`
	// PeakBytes is its part of the region's peak, as peaks have it, and CapacityBytes the capacity; 0 if
	// they are not known.
	PeakBytes     uint64 `json:"peak_bytes"`
	CapacityBytes uint64 `json:"capacity_bytes"`
	// Cached is true if device.clear_program_cache() frees it.
	Cached bool `json:"cached,omitempty"`
}

// peak is the peak of a region of a chip. The bytes of L1 are per core.
type peak struct {
	Device        int    `json:"device"`
	Region        string `json:"region" schema:"region"`
	TimeNs        uint64 `json:"time_ns" wall:"wall_ns"`
	Bytes         uint64 `json:"bytes"`
	CapacityBytes uint64 `json:"capacity_bytes"`
	// OtherUsersBytes is the part of users whose processes are not shown.
	OtherUsersBytes uint64 `json:"other_users_bytes,omitempty"`
	// Sites are the largest call sites: of buffers and of circular buffers. The latter belong to
	// the program with the most.
	Sites []table.Object[site] `json:"sites"`
}

// sole is the holder of all buffers of a row; empty if they differ or are not known.
func sole(r *alloc.Row) (owner memory.Owner) {
	if len(r.Holders) == 1 && r.Holders[0].Count == r.Amounts[0].Count {
		owner = r.Holders[0].Owner
	}
	return owner
}

// fields are the fields of call sites, of which more are of leaks only.
func fields(more ...table.Column) table.Columns {
	return slices.Concat(table.Columns{
		table.Bytes("bytes", "", 0), table.Count("count", "", 0),
		table.Optional("static_kind", "the kind of what a program places in L1", func(r *alloc.Row) string {
			if r.Region != event.CB {
				return ""
			}
			return r.Layout
		}).Values("static_kind"),
	}, more, naming)
}

// naming are the fields that name call sites.
var naming = table.Columns{
	table.Field("name", "the line and the operation", func(r *alloc.Row) string { return r.Name.String() }),
	table.Callers, table.BeforeAttach, table.Class,
	table.Optional("owner", "the path that leads to all of them in the process; left out if they differ", func(r *alloc.Row) string { return sole(r).Path }),
	table.Optional("tensor", "the tensor at that path", func(r *alloc.Row) string { return sole(r).Tensor }),
}

// leaksOf returns call sites that grow.
func leaksOf(list []analyze.Verdict) []table.Object[site] {
	var rows []*alloc.Row
	names := &alloc.Namer{}
	for i := range list {
		rows = append(rows, names.Parts(&list[i].Site, list[i].Amount, holdersOf(&list[i]), "")...)
	}
	return table.Objects[site](fields(table.PID, table.Region), rows)
}

// Document returns the JSON document.
func (p *Page) Document() any {
	r := newReport(p.Snapshot, p.Options)
	doc := Document{Snapshot: *p.Snapshot, Summary: r.summary(), CutShort: p.CutShort, Leaks: leaksOf(r.leaked), Undecided: leaksOf(r.undecided), Retained: []retainedMemory{}, Padding: []paddedRegion{},
		Temporary: r.temporaryDocument(), LateFrees: r.lateFrees(), Peaks: []peak{}}
	for _, one := range r.retained {
		doc.Retained = append(doc.Retained, retainedMemory{
			one.by.Name, one.region.String(), one.Count, one.Bytes, one.grows, one.part, one.capacity, one.by.Cached,
		})
	}
	for i := range r.padded {
		doc.Padding = append(doc.Padding, r.padded[i].document())
	}
	for i := range r.peaks {
		p := &r.peaks[i]
		if p.Bytes == 0 {
			continue
		}
		sites, _ := page.First(r.sourcesOf(i).Rows(false, nil), shownSites)
		one := peak{p.Device, p.Region.String(), p.TimeNs, p.Bytes, p.CapacityBytes, p.OthersBytes, table.Objects[site](fields(), sites)}
		doc.Peaks = append(doc.Peaks, one)
	}
	return doc
}

// site is a call site: the line, the operation and its callers.
//
//schema:report_site
type site struct{}

// Columns are those of all lists.
func (site) Columns() table.Columns { return fields(table.PID.OrNone(), table.Region.OrNone()) }
