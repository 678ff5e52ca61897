// Package peak is the page of the peaks of each region of each chip, as text and as JSON.
package peak

import (
	"slices"

	"ttmem/aggregate"
	"ttmem/aggregate/advise"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A Page is the peaks of a state.
type Page struct {
	Options
	Snap  *memory.Snapshot
	peaks []memory.RegionPeak
	names *alloc.Namer
	// holders are of the buffers that are still live.
	holders analyze.Holders
	// The timelines go from beginNs to endNs.
	beginNs, endNs uint64
	// restored is true if there was memory before the beginning. Only its highest peaks are known.
	restored bool
	regions  []*chipsPeak
}

// A chipsPeak is the peak of a region of chips with the same peak.
type chipsPeak struct {
	memory.RegionPeak
	ids []int
	// buffers and statics are its contents.
	buffers, statics []*alloc.Row
}

// Options are what a page shows.
type Options struct {
	// Of is the origin of the peaks, such as "model.ttmem", and Place the same with a
	// preposition: "in model.ttmem".
	Of, Place string
	// Span is the part of the recording; zero for all of it.
	Span page.Span
	// Losses make the peaks doubtful; nil: those of the state.
	Losses *memory.AllLosses
	// By is the grouping of the peaks' contents, as alloc.GroupingOf names it.
	By string
	// Lines is true if a line with several call sites has one row in the text.
	Lines bool
	// Limit is the maximum number of rows of a list; 0: all.
	Limit  int
	Filter alloc.Filter
	Rules  *name.Rules
	// Advice is what is held after its last use; nil if that was not searched.
	Advice *advise.Advice
	// EndNs is the time up to which nothing is missing, by CLOCK_MONOTONIC; 0: the latest event.
	EndNs uint64
	// Notes say why figures may be wrong, and About explains the timelines, one sentence each.
	Notes, About []string
	// Clock relates times to the wall clock. With UTC, times are printed by the wall clock.
	Clock page.Clock
	UTC   bool
}

// New returns the page of a state's peaks.
func New(state *aggregate.State, o Options) *Page {
	begin, restored := state.Since()
	snap := state.Snapshot()
	p := &Page{
		Options: o, Snap: snap, peaks: state.RegionPeaks(),
		beginNs: begin, endNs: max(begin, snap.TimeNs, o.EndNs), restored: restored,
		names: &alloc.Namer{Snap: snap, Rules: o.Rules}, holders: analyze.PastHoldersOf(state),
	}
	if p.Losses == nil {
		losses := snap.Losses(false, o.Filter.PIDs)
		p.Losses = &losses
	}
	if late := p.late(&o.Filter); late != "" {
		p.About = append([]string{late}, o.About...)
	}
	for _, region := range page.Regions {
		var peaks []*memory.RegionPeak
		for i := range p.peaks {
			if peak := &p.peaks[i]; peak.Region == region && o.Filter.SelectsPeak(peak.Device, region) {
				peaks = append(peaks, peak)
			}
		}
		for _, same := range page.Alike(peaks, alike) {
			one := &chipsPeak{RegionPeak: *same[0]}
			one.buffers, one.statics = p.names.AtPeak(same[0], &p.holders, o.By)
			for _, peak := range same {
				one.ids = append(one.ids, peak.Device)
			}
			for _, peak := range same[1:] { // their use at other times is in the timeline
				one.Timeline = one.Timeline.With(peak.Timeline, p.endNs)
				one.StaticTimeline = one.StaticTimeline.With(peak.StaticTimeline, p.endNs)
			}
			p.regions = append(p.regions, one)
		}
	}
	return p
}

// alike reports whether two chips have the same peak with the same contents.
func alike(a, b *memory.RegionPeak) bool {
	earlier := (a.Earlier == nil) == (b.Earlier == nil) && (a.Earlier == nil || *a.Earlier == *b.Earlier)
	return a.Region == b.Region && a.TimeNs == b.TimeNs && a.Bytes == b.Bytes && a.CapacityBytes == b.CapacityBytes &&
		a.StaticBytes == b.StaticBytes && a.AtLeast == b.AtLeast && a.OthersBytes == b.OthersBytes && a.OthersStaticBytes == b.OthersStaticBytes && earlier &&
		slices.EqualFunc(a.Holders, b.Holders, func(a, b memory.SiteAmount) bool {
			return a.PID == b.PID && memory.StackID(a.Stack) == memory.StackID(b.Stack) && a.Layout == b.Layout && a.BeforeAttach == b.BeforeAttach &&
				a.Count == b.Count && a.Bytes == b.Bytes && len(a.Devices) == len(b.Devices)
		}) &&
		slices.EqualFunc(a.Programs, b.Programs, func(a, b memory.PeakProgram) bool {
			same := memory.StackID(a.Stack) == memory.StackID(b.Stack)
			a.Stack, b.Stack = nil, nil
			return same && a == b
		})
}
