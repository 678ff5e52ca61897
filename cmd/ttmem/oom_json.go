package main

import (
	"io"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// oomDocument is what `ttmem oom --json` prints. Times are CLOCK_MONOTONIC.
type oomDocument struct {
	V       int    `json:"v"`
	TimeNs  uint64 `json:"time_ns"`
	BeganNs uint64 `json:"began_ns,omitempty"`
	// Failures are oldest first. Omitted are not shown because of -n, and of
	// Forgotten nothing is known any more but that they failed.
	Failures  []oomFailure      `json:"failures"`
	Omitted   int               `json:"omitted"`
	Forgotten uint64            `json:"forgotten"`
	Lost      map[string]uint64 `json:"lost"`
	Notes     []string          `json:"notes,omitempty"`
}

// oomFailure is a request that failed. Fields that do not apply are left out.
type oomFailure struct {
	TimeNs  uint64 `json:"time_ns"`
	PID     int    `json:"pid"`
	TID     int    `json:"tid,omitempty"`
	Process string `json:"process,omitempty"`
	UID     int    `json:"uid"`
	// Reason is "out_of_memory", "fragmented" or "static_clash", and "" for what
	// failed in another way; TooLarge is true for more than an empty bank has.
	Reason   string `json:"reason"`
	TooLarge bool   `json:"too_large,omitempty"`
	Region   string `json:"region"`
	Devices  []int  `json:"devices"`

	SizeBytes          uint64 `json:"size_bytes,omitempty"`
	Banks              uint32 `json:"banks,omitempty"`
	NeededBytesPerBank uint64 `json:"needed_bytes_per_bank,omitempty"`
	// What there was of each bank when it failed, where that is known.
	CapacityBytesPerBank  *uint64 `json:"capacity_bytes_per_bank,omitempty"`
	AllocatedBytesPerBank *uint64 `json:"allocated_bytes_per_bank,omitempty"`
	FreeBytesPerBank      *uint64 `json:"free_bytes_per_bank,omitempty"`
	LargestFreeBlockBytes *uint64 `json:"largest_free_block_bytes,omitempty"`

	// Of a clash: where the lowest tensor begins and the program's buffers end.
	ProgramID       *uint64     `json:"program_id,omitempty"`
	LowestL1Address uint64      `json:"lowest_l1_address,omitempty"`
	StaticRegionEnd uint64      `json:"static_region_end,omitempty"`
	Statics         []oomStatic `json:"statics,omitempty"`

	Message string `json:"message,omitempty"`
	Name    string `json:"name,omitempty"`
	// Blocking is what would have to go, and Blockers the call stacks that it is
	// from; Held and Holders are all that the region had.
	Blocking *oomBlocking `json:"blocking,omitempty"`
	Blockers []oomBlame   `json:"blockers,omitempty"`
	Held     *oomHeld     `json:"held,omitempty"`
	Holders  []oomBlame   `json:"holders,omitempty"`
	Stack    *event.Stack `json:"stack,omitempty"`
}

// oomHeld is a number of buffers.
type oomHeld struct {
	BytesPerBank uint64 `json:"bytes_per_bank"`
	Buffers      uint64 `json:"buffers"`
}

// oomBlocking lies between two addresses of each bank.
type oomBlocking struct {
	FromAddress uint64 `json:"from_address"`
	ToAddress   uint64 `json:"to_address"`
	oomHeld
}

// oomBlame is what was allocated by one call stack.
type oomBlame struct {
	oomHeld
	LowestAddress uint64       `json:"lowest_address"`
	EndAddress    uint64       `json:"end_address"`
	BeforeAttach  bool         `json:"before_attach,omitempty"`
	Name          string       `json:"name"`
	Kept          string       `json:"kept,omitempty"` // what of tt-metal's own keeps it
	Stack         *event.Stack `json:"stack,omitempty"`
}

// oomStatic is a static buffer of a program that reaches above the lowest tensor.
type oomStatic struct {
	Address      uint64      `json:"address"`
	BytesPerCore uint64      `json:"bytes_per_core"`
	StaticKind   string      `json:"static_kind"`
	Cores        [][4]uint16 `json:"cores"`
}

func (p *oomPage) writeJSON(w io.Writer) error {
	doc := oomDocument{
		V: 1, TimeNs: p.snap.TimeNs, BeganNs: p.snap.BeganNs, Failures: []oomFailure{}, Forgotten: p.forgotten,
		Lost: p.snap.Lost, Notes: p.w.notes,
	}
	var shown []*aggregate.Failure
	shown, doc.Omitted = page.Newest(p.failures, p.o.n)
	for _, f := range shown {
		doc.Failures = append(doc.Failures, p.failure(f))
	}
	return page.JSON(w, doc)
}

// reasonOf is the reason of a failure for programs.
func reasonOf(f *aggregate.Failure) string {
	if f.Verdict() == aggregate.Fragmented {
		return "fragmented"
	}
	return f.Reason
}

func (p *oomPage) failure(f *aggregate.Failure) oomFailure {
	one := oomFailure{
		TimeNs: f.TimeNs, PID: f.PID, TID: f.TID, Process: p.process(f), UID: f.UID,
		Reason: reasonOf(f), TooLarge: f.Verdict() == aggregate.TooLarge, Region: f.Region, Devices: f.Devices,
		SizeBytes: f.SizeBytes, Banks: f.Banks, NeededBytesPerBank: f.BytesPerBank,
		Message: f.Message, Name: name.Of(f.Stack.Frames()).String(), Stack: f.Stack,
	}
	if f.Region == event.CB.String() {
		one.ProgramID = &f.ProgramID
	}
	e := f.Evidence
	if e == nil {
		return one
	}
	if e.Capacity.Base != 0 {
		one.CapacityBytesPerBank, one.AllocatedBytesPerBank = &e.Capacity.BytesPerBank, &e.Held.BytesPerBank
		one.FreeBytesPerBank, one.LargestFreeBlockBytes = &e.FreeBytesPerBank, &e.LargestFreeBytesPerBank
	}
	if f.Verdict() == aggregate.Clash {
		one.LowestL1Address, one.StaticRegionEnd = e.Lowest, e.To
		for i := range e.Statics {
			s := &e.Statics[i]
			static := oomStatic{Address: s.Address, BytesPerCore: s.BytesPerCore, StaticKind: s.Kind.String(), Cores: [][4]uint16{}}
			for _, r := range s.Cores {
				static.Cores = append(static.Cores, [4]uint16{r.X0, r.Y0, r.X1, r.Y1})
			}
			one.Statics = append(one.Statics, static)
		}
	}
	if e.To > 0 {
		one.Blocking = &oomBlocking{e.From, e.To, oomHeld{e.Blocking.BytesPerBank, e.Blocking.Count}}
	}
	one.Held = &oomHeld{e.Held.BytesPerBank, e.Held.Count}
	one.Blockers, one.Holders = oomBlames(e.Blockers), oomBlames(e.Holders)
	return one
}

func oomBlames(list []aggregate.Blame) (blames []oomBlame) {
	for i := range list {
		l := &list[i]
		frames := l.Stack.Frames()
		one := oomBlame{
			oomHeld: oomHeld{l.BytesPerBank, l.Count}, LowestAddress: l.Address, EndAddress: l.End,
			BeforeAttach: l.BeforeAttach, Name: name.Of(frames).String(), Stack: l.Stack,
		}
		if kept := name.RuntimeRetained(frames); kept != nil {
			one.Kept = kept.Name
		}
		blames = append(blames, one)
	}
	return blames
}
