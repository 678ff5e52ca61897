package report

import (
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Document is the output of `ttmem report --json`, and of run and attach with --json: a snapshot, with the
// leaks and the contents of the peaks.
type Document struct {
	memory.Snapshot
	// CutShort is true if the recording's end is missing.
	CutShort bool `json:"cut_short,omitempty"`
	// Leaks are the call sites that leak, most bytes first.
	Leaks []site `json:"leaks"`
	// Undecided are the call sites that only grew, but are too small to judge.
	Undecided []site `json:"undecided"`
	// Retained is what the runtime retains, where it grows or fills over a quarter of a region.
	Retained []retainedMemory `json:"retained"`
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
	Sites []site `json:"sites"`
}

// site is a call site: the line, the operation and its callers.
//
//schema:report_site
type site struct {
	Bytes        uint64   `json:"bytes"`
	Count        uint64   `json:"count"`
	StaticKind   string   `json:"static_kind,omitempty" schema:"static_kind"`
	PID          int      `json:"pid,omitempty" user:"user"`
	Region       string   `json:"region,omitempty" schema:"region"`
	Name         string   `json:"name"`
	Callers      []string `json:"callers,omitempty"`
	BeforeAttach bool     `json:"before_attach,omitempty"`
	// Class is what the buffers are for; left out if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	// Owner is the path that leads to all of them in the process, and Tensor the tensor there; left
	// out if they differ or are not known.
	Owner  string `json:"owner,omitempty"`
	Tensor string `json:"tensor,omitempty"`
}

func (s *source) site() site {
	one := site{Bytes: s.Bytes, Count: s.Count, Region: s.region, Name: s.Name.String(), Callers: s.Callers, BeforeAttach: s.beforeAttach, Class: s.Class.String()}
	if len(s.holders) == 1 && s.holders[0].Count == s.Count {
		one.Owner, one.Tensor = s.holders[0].Path, s.holders[0].Tensor
	}
	if s.kind != event.NotStatic {
		one.StaticKind = s.kind.String()
	}
	return one
}

// sitesOf returns call sites that grow.
func sitesOf(list []analyze.Verdict) []site {
	sites := []site{}
	for i := range list {
		for _, one := range newLeak(&list[i], list[i].Region.String()) {
			l := one.site()
			l.PID = list[i].PID
			sites = append(sites, l)
		}
	}
	return sites
}

// Document returns the JSON document.
func (p *Page) Document() any {
	r := newReport(p.Snapshot, p.Options)
	doc := Document{Snapshot: *p.Snapshot, CutShort: p.CutShort, Leaks: sitesOf(r.leaked), Undecided: sitesOf(r.undecided), Retained: []retainedMemory{}, Peaks: []peak{}}
	for _, one := range r.retained {
		doc.Retained = append(doc.Retained, retainedMemory{
			one.by.Name, one.region.String(), one.Count, one.Bytes, one.grows, one.part, one.capacity, one.by.Cached,
		})
	}
	for i := range r.peaks {
		p := &r.peaks[i]
		if p.Bytes == 0 {
			continue
		}
		one := peak{p.Device, p.Region.String(), p.TimeNs, p.Bytes, p.CapacityBytes, p.OthersBytes, []site{}}
		list := folded(r.sourcesOf(p), false)
		for j := range list[:min(len(list), shownSites)] {
			one.Sites = append(one.Sites, list[j].site())
		}
		doc.Peaks = append(doc.Peaks, one)
	}
	return doc
}
