package oom

import (
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// Document is the output of `ttmem oom --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V       int    `json:"v"`
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	BeganNs uint64 `json:"began_ns,omitempty" wall:"began_wall_ns"`
	// Failures are oldest first. Omitted is the number that -n leaves out, and Forgotten the
	// number of failures without any details.
	Failures []failure `json:"failures"`
	// OperationFailures are the newest operations that failed for a reason other than memory.
	OperationFailures []failure `json:"operation_failures,omitempty"`
	// Smallest is with what a run without failures would still have worked.
	Smallest []smallestFound `json:"smallest,omitempty"`
	// WhatIf are the changes of flags such as --without.
	WhatIf    *changes `json:"what_if,omitempty"`
	Omitted   int      `json:"omitted"`
	Forgotten uint64   `json:"forgotten"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// failure is a failed allocation. Fields that do not apply are left out.
//
//schema:failure
type failure struct {
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	PID     int    `json:"pid" user:"user"`
	TID     int    `json:"tid,omitempty"`
	Process string `json:"process,omitempty"`
	UID     int    `json:"uid"`
	// Reason is "fragmented", a reason of docs/events.md, or "" for another failure.
	// TooLarge is true if the request exceeds an empty bank.
	Reason   string `json:"reason" schema:"|fragmented|reason"`
	TooLarge bool   `json:"too_large,omitempty"`
	Region   string `json:"region" schema:"region|"`
	Devices  []int  `json:"devices"`

	SizeBytes          uint64 `json:"size_bytes,omitempty"`
	Banks              uint32 `json:"banks,omitempty"`
	NeededBytesPerBank uint64 `json:"needed_bytes_per_bank,omitempty"`
	// The state of each bank when the allocation failed, if it is known.
	CapacityBytesPerBank  *uint64 `json:"capacity_bytes_per_bank,omitempty"`
	AllocatedBytesPerBank *uint64 `json:"allocated_bytes_per_bank,omitempty"`
	FreeBytesPerBank      *uint64 `json:"free_bytes_per_bank,omitempty"`
	LargestFreeBlockBytes *uint64 `json:"largest_free_block_bytes,omitempty"`
	// Counted is the state of each bank by ttmem's count, if the library's message says another one.
	Counted *event.BankState `json:"counted,omitempty"`

	// FreedBy are calls that may have freed the tensor which the operation used, the newest first.
	FreedBy []freedBy `json:"freed_by,omitempty"`

	// For a clash: where the lowest tensor begins and the program's buffers end.
	ProgramID       *uint64  `json:"program_id,omitempty"`
	LowestL1Address uint64   `json:"lowest_l1_address,omitempty"`
	StaticRegionEnd uint64   `json:"static_region_end,omitempty"`
	Statics         []static `json:"statics,omitempty"`

	// Of a failure that is not one of an allocator: the figures of the message, and the cores in its
	// words.
	NeededBytes    uint64 `json:"needed_bytes,omitempty"`
	AvailableBytes uint64 `json:"available_bytes,omitempty"`
	Cores          string `json:"cores,omitempty"`
	StaticKind     string `json:"static_kind,omitempty" schema:"static_kind"`
	// Setting is the argument of ttnn.open_device that helps, and ClearProgramCache what
	// device.clear_program_cache() frees, if that is enough.
	Setting           *setting  `json:"setting,omitempty"`
	ClearProgramCache *clearing `json:"clear_program_cache,omitempty"`
	// WhatIf is the answer to flags such as --without.
	WhatIf *answer      `json:"what_if,omitempty"`
	Remedy *remedyFound `json:"remedy,omitempty"`

	Message string `json:"message,omitempty"`
	Name    string `json:"name,omitempty"`
	// Blocking are the buffers to free, and Blockers their call stacks; Held and Holders are all
	// buffers of the region.
	Blocking *blocking    `json:"blocking,omitempty"`
	Blockers []blame      `json:"blockers,omitempty"`
	Held     *amount      `json:"held,omitempty"`
	Holders  []blame      `json:"holders,omitempty"`
	Stack    *event.Stack `json:"stack,omitempty"`
}

// setting is a size with which the allocation fits: at least Bytes or, with AtMost, at most.
type setting struct {
	Name   string `json:"name" schema:"l1_small_size|trace_region_size|worker_l1_size"`
	Bytes  uint64 `json:"bytes"`
	AtMost bool   `json:"at_most,omitempty"`
	Proof  *proof `json:"proof,omitempty"`
}

// clearing is what clearing the program cache frees.
type clearing struct {
	amount
	Proof *proof `json:"proof,omitempty"`
}

// amount is a number of buffers.
//
//schema:amount_per_bank
type amount struct {
	BytesPerBank uint64 `json:"bytes_per_bank"`
	Buffers      uint64 `json:"buffers"`
}

// blocking is between two addresses of each bank.
type blocking struct {
	FromAddress uint64 `json:"from_address"`
	ToAddress   uint64 `json:"to_address"`
	amount
	Proof *proof `json:"proof,omitempty"`
}

// blame is the memory allocated by one call stack.
type blame struct {
	amount
	LowestAddress uint64 `json:"lowest_address"`
	EndAddress    uint64 `json:"end_address"`
	BeforeAttach  bool   `json:"before_attach,omitempty"`
	Name          string `json:"name"`
	Kept          string `json:"kept,omitempty"` // what of the runtime retains it
	// Class is what the buffers are for; left out if that is not known.
	Class string `json:"class,omitempty" schema:"class"`
	// HeldBy are the owners, the most bytes first, as far as they are known. A path to several buffers has *
	// in place of indices.
	HeldBy []holder     `json:"held_by,omitempty"`
	Stack  *event.Stack `json:"stack,omitempty"`
}

// holder is the owner of some of the buffers.
type holder struct {
	amount
	Owner  string `json:"owner"`
	Tensor string `json:"tensor,omitempty"`
}

// freedBy is a call that deallocated a tensor before an operation used one that is not allocated.
type freedBy struct {
	TimeNs  uint64       `json:"time_ns" wall:"wall_ns"`
	Address uint64       `json:"address"`
	Name    string       `json:"name"`
	Stack   *event.Stack `json:"stack"`
}

// static is a static buffer of a program that reaches above the lowest tensor.
type static struct {
	Address      uint64      `json:"address"`
	BytesPerCore uint64      `json:"bytes_per_core"`
	StaticKind   string      `json:"static_kind" schema:"static_kind"`
	Cores        [][4]uint16 `json:"cores"`
}

// Losses returns the lost events that make the failures doubtful.
func (p *Page) Losses() memory.AllLosses { return p.Snapshot.Losses(false, p.PIDs) }

// Document returns the JSON document.
func (p *Page) Document() any {
	doc := Document{
		V: 1, TimeNs: p.Snapshot.TimeNs, BeganNs: p.Snapshot.BeganNs, Failures: []failure{}, Forgotten: p.forgotten,
		AllLosses: p.Losses(), Notes: p.Notes, Smallest: p.smallestFound(),
	}
	if w := p.WhatIf; w != nil {
		doc.WhatIf = &changes{w.title(), w.LeftOut, w.Moved, w.Early, w.Sharded, w.Failed, p.mostAllocated(), proofOf(&p.whole)}
	}
	var shown []*memory.Failure
	shown, doc.Omitted = page.Newest(p.Failures, p.Limit)
	for _, f := range shown {
		doc.Failures = append(doc.Failures, p.failure(f))
	}
	operations, _ := page.Newest(p.Operations, p.Limit)
	for _, f := range operations {
		one := p.failure(f)
		for _, d := range analyze.FreedBy(f) {
			one.FreedBy = append(one.FreedBy, freedBy{d.TimeNs, d.Address, name.Of(d.FreedBy.Frames()).String(), d.FreedBy})
		}
		doc.OperationFailures = append(doc.OperationFailures, one)
	}
	return doc
}

func reasonOf(f *memory.Failure) string {
	if analyze.CauseOf(f) == analyze.Fragmented {
		return "fragmented"
	}
	return f.Reason
}

func (p *Page) failure(f *memory.Failure) failure {
	process, proofs := p.process(f), p.proofsOf(f)
	one := failure{
		TimeNs: f.TimeNs, PID: f.PID, TID: f.TID, Process: process, UID: f.UID,
		Reason: reasonOf(f), TooLarge: analyze.CauseOf(f) == analyze.TooLarge, Region: f.Region, Devices: f.Devices,
		SizeBytes: f.SizeBytes, Banks: f.Banks, NeededBytesPerBank: f.BytesPerBank,
		Message: f.Message, Name: name.Of(f.Stack.Frames()).String(), Stack: f.Stack, Remedy: p.remedyFound(f),
	}
	if f.Region == event.CB.String() || f.Region == event.Kernel.String() {
		one.ProgramID = &f.ProgramID
	}
	if l, _ := event.LimitsIn(f.Message); l.Reason != event.ReasonOutOfMemory && f.Reason != "" {
		one.NeededBytes, one.AvailableBytes, one.Cores, one.StaticKind = l.NeededBytes, l.AvailableBytes, page.Clean(l.Cores), l.Static.String()
	}
	if s, ok := analyze.SettingFor(f); ok {
		one.Setting = &setting{s.Name, s.Bytes, s.AtMost, proofOf(proofs.setting)}
	}
	if cached := analyze.ProgramCache(f); cached.Count > 0 {
		one.ClearProgramCache = &clearing{amount{cached.Bytes, cached.Count}, proofOf(proofs.clear)}
	}
	if v := proofs.whatIf; v != nil {
		one.WhatIf = &answer{v.Fits, outcomeOf(v), v.Doubt}
	}
	e := f.Evidence
	if e == nil {
		return one
	}
	if e.Known() {
		one.Counted = e.Counted
		one.CapacityBytesPerBank, one.AllocatedBytesPerBank = &e.Capacity.BytesPerBank, &e.AllocatedBytesPerBank
		one.FreeBytesPerBank, one.LargestFreeBlockBytes = &e.FreeBytesPerBank, &e.LargestFreeBytesPerBank
	}
	if cause := analyze.CauseOf(f); cause == analyze.Clash || cause == analyze.StaticTooLarge {
		one.LowestL1Address, one.StaticRegionEnd = e.Lowest, e.To
		for i := range e.Statics {
			s := &e.Statics[i]
			one.Statics = append(one.Statics, static{s.Address, s.BytesPerCore, s.Kind.String(), page.Rectangles(s.Cores)})
		}
	}
	if e.To > 0 {
		one.Blocking = &blocking{e.From, e.To, amount{e.Blocking.BytesPerBank, e.Blocking.Count}, proofOf(proofs.free)}
	}
	one.Held = &amount{e.Live.BytesPerBank, e.Live.Count}
	one.Blockers, one.Holders = p.blames(f, e.Blockers), p.blames(f, e.Holders)
	return one
}

func (p *Page) blames(f *memory.Failure, list []memory.Blame) (blames []blame) {
	for i := range list {
		l := &list[i]
		frames := l.Stack.Frames()
		one := blame{
			amount: amount{l.BytesPerBank, l.Count}, LowestAddress: l.Address, EndAddress: l.End,
			BeforeAttach: l.BeforeAttach, Name: name.Of(frames).String(), Stack: l.Stack,
		}
		class := name.ClassOf(frames, f.Evidence.Region)
		if one.Class = class.String(); class.Retained() {
			one.Kept = one.Class
		}
		for _, h := range p.holders(f, l) {
			if h.Path != "" {
				one.HeldBy = append(one.HeldBy, holder{amount{h.Bytes, h.Count}, h.Path, h.Tensor})
			}
		}
		blames = append(blames, one)
	}
	return blames
}
