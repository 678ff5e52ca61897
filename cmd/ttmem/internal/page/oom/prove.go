package oom

import (
	"bufio"
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// proofs are what replay says of the advice about a failure; nil where there is none.
type proofs struct{ free, clear, setting, whatIf *replay.Verdict }

// A key finds the failure of an event.
type key struct {
	timeNs, perBank uint64
	pid             int
	region, reason  string
}

// mostSettings is the number of settings that are replayed. Each takes as long as all of the recording.
const mostSettings = 16

// Why advice is not proved.
const (
	needsRecording = "only a recording is replayed: `ttmem run` makes one"
	notReached     = "the recording cannot be read from its beginning to this failure"
	notOpened      = "the device was not opened: there is nothing to replay"
	manySettings   = "too many settings were replayed already: -n 1 replays one"
)

// advice returns the advice about a failure. Nothing of it is proved, for the reason why.
func advice(f *memory.Failure, why string) (a proofs) {
	cause := analyze.CauseOf(f)
	if e := f.Evidence; e != nil && e.To > 0 && e.Blocking.Count > 0 && !e.PerCore && cause != analyze.Unexplained &&
		(cause >= analyze.Clash || !analyze.OnlyCached(e)) {
		a.free = &replay.Verdict{Doubt: why}
	}
	if analyze.ProgramCache(f).Count > 0 {
		a.clear = &replay.Verdict{Doubt: why}
	}
	if _, ok := analyze.SettingFor(f); ok {
		a.setting = &replay.Verdict{Doubt: why}
		if l, _ := event.LimitsIn(f.Message); l.Setting != "" {
			a.setting.Doubt = notOpened
		}
	}
	return a
}

// Prove replays a recording, and with it the advice about the failures in it. play plays all events; without a
// recording it is nil.
func (p *Page) Prove(play func(handle func(*event.Event)) error) error {
	p.proofs, p.predicted, p.remedies = make(map[*memory.Failure]*proofs), make(map[*memory.Failure]bool), make(map[*memory.Failure]*remedy)
	var whatIfs []*replay.WhatIf
	if p.WhatIf != nil {
		whatIfs = append(whatIfs, &p.WhatIf.WhatIf)
	}
	type device struct {
		analyze.Setting
		pid int
	}
	settings := make(map[device]int) // their indices in whatIfs
	deviceOf := func(f *memory.Failure) device {
		s, _ := analyze.SettingFor(f)
		return device{s, f.PID}
	}
	for _, f := range slices.Backward(p.Failures) {
		why := notReached
		if play == nil {
			why = needsRecording
		}
		a := advice(f, why)
		if p.WhatIf != nil {
			a.whatIf = &replay.Verdict{Doubt: why}
		}
		if a == (proofs{}) {
			continue
		}
		p.proofs[f] = &a
		if a.setting != nil && a.setting.Doubt != notOpened {
			d := deviceOf(f)
			if _, known := settings[d]; !known && len(settings) < mostSettings {
				settings[d] = len(whatIfs)
				whatIfs = append(whatIfs, &replay.WhatIf{Changes: []replay.Change{replay.Set(d.Name, d.Bytes, f.PID)}})
			}
		}
	}
	if play == nil || p.isNotSearched() {
		return nil
	}
	r, failureOf := replay.New(whatIfs...), p.failureOf()
	r.OnFailure = func(now *replay.Failure) {
		f := failureOf(now)
		p.predicted[f] = now.Doubt == ""
		a := p.proofs[f]
		if a == nil {
			return
		}
		if a.free != nil {
			*a.free = now.Freeing(f.Evidence.From, f.Evidence.To)
		}
		if a.clear != nil {
			*a.clear = now.FreeingAll(cached)
		}
		if a.setting != nil && a.setting.Doubt != notOpened {
			if i, known := settings[deviceOf(f)]; known {
				*a.setting = now.With(i)
			} else {
				a.setting.Doubt = manySettings
			}
		}
		if a.whatIf != nil {
			*a.whatIf = now.With(0)
		}
	}
	if err := r.Play(play); err != nil {
		return err
	}
	p.recorded = r.Most
	if p.WhatIf != nil {
		p.whole = wholeOf(r, 0, &p.WhatIf.WhatIf)
	}
	for _, f := range p.Failures { // what else would fail is known at the end
		if a := p.proofs[f]; a != nil {
			if a.whatIf != nil {
				judge(a.whatIf, &p.WhatIf.WhatIf)
			}
			if a.setting != nil && a.setting.Fits {
				judge(a.setting, whatIfs[settings[deviceOf(f)]])
			}
		}
	}
	switch {
	case p.WhatIf != nil:
		return nil
	case len(p.Failures) == 0:
		return p.findSmallest(play, r)
	}
	return p.findRemedies(play, r)
}

// failureOf returns a function that finds the failures of a replay, which are in order; nil for one that was not selected.
func (p *Page) failureOf() func(*replay.Failure) *memory.Failure {
	waiting := make(map[key][]*memory.Failure)
	for _, f := range p.Failures {
		k := key{f.TimeNs, f.BytesPerBank, f.PID, f.Region, f.Reason}
		waiting[k] = append(waiting[k], f)
	}
	return func(now *replay.Failure) (f *memory.Failure) {
		e := now.Event
		k := key{e.TimeNs, e.BytesPerBank, e.PID, e.Region.String(), e.Reason.String()}
		if list := waiting[k]; len(list) > 0 {
			f, waiting[k] = list[0], list[1:]
		}
		return f
	}
}

// judge doubts that a failure fits with a change with which something else fails.
func judge(v *replay.Verdict, w *replay.WhatIf) {
	if v.Fits && w.Failed > 0 {
		*v = replay.Verdict{Doubt: alsoFails(w)}
	}
}

// wholeOf says whether all that worked as recorded still does with a change, the ith.
func wholeOf(r *replay.Replay, i int, w *replay.WhatIf) replay.Verdict {
	v := r.Whole(i)
	if !v.Fits && v.Doubt == "" {
		v.Doubt = alsoFails(w)
	}
	return v
}

// alsoFails says what fails with a change only.
func alsoFails(w *replay.WhatIf) string {
	at := "in unknown code"
	if w.FirstFailed != nil {
		at = "at " + cmp.Or(page.Clean(name.Of(w.FirstFailed.Frames()).String()), "a call without a name")
	}
	if w.Failed == 1 {
		return "then a call that worked fails, " + at
	}
	return fmt.Sprintf("then %s calls that worked fail, first %s", page.Grouped(w.Failed), at)
}

// proofsOf returns the proofs of the advice about a failure, after Prove.
func (p *Page) proofsOf(f *memory.Failure) proofs {
	if a := p.proofs[f]; a != nil {
		return *a
	}
	return proofs{}
}

// stillFails is the reason against an advice that does not help.
const stillFails = "by replay, it still fails"

// where says where a failed allocation goes, or how far circular buffers then are from the lowest tensor.
func where(v *replay.Verdict) string {
	switch {
	case v.Address > 0:
		return fmt.Sprintf("it goes to %#x", v.Address)
	case v.End > 0 && v.Lowest > 0:
		return fmt.Sprintf("circular buffers end at %#x, the lowest tensor is at %#x", v.End, v.Lowest)
	case v.End > 0:
		return fmt.Sprintf("circular buffers end at %#x, and there is no tensor", v.End)
	}
	return ""
}

// writeProof writes whether replay proves an advice, if there is one.
func writeProof(out *bufio.Writer, layout page.Layout, v *replay.Verdict) {
	if v == nil {
		return
	}
	text := "proved by replay"
	switch at := where(v); {
	case v.Doubt != "":
		text = "not proved: " + v.Doubt
	case !v.Fits:
		text = "not proved: " + stillFails
	case at != "":
		text += ": " + at
	}
	layout.Write(out, 3, page.NoStyle, text)
}

// writeWhatIf writes whether a failed allocation would fit with the changes that the user asks about.
func (p *Page) writeWhatIf(out *bufio.Writer, layout page.Layout, v *replay.Verdict) {
	if v == nil {
		return
	}
	text := p.WhatIf.title() + ": "
	switch at := where(v); {
	case v.Doubt != "":
		text += "not proved: " + v.Doubt
	case !v.Fits:
		text += "it still fails; proved by replay"
	case at != "":
		text += "it fits: " + at + "; proved by replay"
	default:
		text += "it fits; proved by replay"
	}
	layout.Write(out, 1, page.Bold, text)
}

// writeChanged writes what the changes that the user asks about do to the rest of the recording.
func (p *Page) writeChanged(out *bufio.Writer, layout page.Layout) {
	if p.WhatIf == nil {
		return
	}
	fmt.Fprintln(out)
	layout.Write(out, 0, page.Dim, p.WhatIf.title()+", the whole recording replayed:")
	if n := p.WhatIf.LeftOut; n > 0 {
		layout.Write(out, 1, page.NoStyle, page.Count(n, "allocation")+" left out")
	}
	if n := p.WhatIf.Moved; n > 0 {
		layout.Write(out, 1, page.NoStyle, page.Count(n, "allocation")+" moved")
	}
	if n := p.WhatIf.Early; n > 0 {
		layout.Write(out, 1, page.NoStyle, page.Count(n, "buffer")+" freed earlier")
	}
	if n := p.WhatIf.Sharded; n > 0 {
		layout.Write(out, 1, page.NoStyle, page.Count(n, "sharded buffer")+" as recorded: whether that board has their cores is not checked")
	}
	for _, most := range p.mostAllocated() {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("%s: at most %s of each bank allocated; recorded %s",
			most.Region, page.Bytes(most.BytesPerBank), page.Bytes(most.RecordedBytesPerBank)))
	}
	text := "all that worked fits; proved by replay"
	if p.whole.Doubt != "" {
		text = "not proved: " + p.whole.Doubt
	}
	layout.Write(out, 1, page.Bold, text)
}

// mostAllocated is what was allocated at most, in the allocator with the most, with the changes and as recorded.
//
//schema:most_allocated
type mostAllocated struct {
	Region               string `json:"region" schema:"banked_region"`
	BytesPerBank         uint64 `json:"bytes_per_bank"`
	RecordedBytesPerBank uint64 `json:"recorded_bytes_per_bank"`
}

func (p *Page) mostAllocated() []mostAllocated {
	list := []mostAllocated{}
	for region, recorded := range p.recorded {
		if recorded > 0 {
			list = append(list, mostAllocated{event.Region(region).String(), p.WhatIf.Most[region], recorded})
		}
	}
	return list
}

// proof is whether replay proves an advice. Without proof, reason says why.
//
//schema:proof
type proof struct {
	Proved bool `json:"proved"`
	outcome
	Reason string `json:"reason,omitempty"`
}

// outcome is the address that an allocation then gets or, of circular buffers, where they end and where the lowest tensor
// begins.
type outcome struct {
	Address      uint64 `json:"address,omitempty"`
	StaticEnd    uint64 `json:"static_region_end,omitempty"`
	LowestTensor uint64 `json:"lowest_l1_address,omitempty"`
}

func outcomeOf(v *replay.Verdict) outcome { return outcome{v.Address, v.End, v.Lowest} }

// proofOf returns a proof for JSON; nil without advice.
func proofOf(v *replay.Verdict) *proof {
	switch {
	case v == nil:
		return nil
	case v.Doubt == "" && !v.Fits:
		return &proof{Reason: stillFails}
	}
	return &proof{v.Doubt == "", outcomeOf(v), v.Doubt}
}

// answer is whether a failed allocation fits with the changes that the user asks about, by replay. Reason says why that is not
// proved.
type answer struct {
	Fits bool `json:"fits"`
	outcome
	Reason string `json:"reason,omitempty"`
}

// changes are what the user asks about with flags such as --without, and what they do to the rest of the recording: the
// allocations that are left out or moved to another region or the beginning, buffers that are freed earlier, sharded buffers whose cores another board may lack, the calls that fail only with the
// changes, and what is allocated at most.
type changes struct {
	Changes       string          `json:"changes"`
	LeftOut       uint64          `json:"left_out"`
	Moved         uint64          `json:"moved,omitempty"`
	FreedEarlier  uint64          `json:"freed_earlier,omitempty"`
	Sharded       uint64          `json:"sharded_unchecked,omitempty"`
	OtherFailures uint64          `json:"other_failures"`
	MostAllocated []mostAllocated `json:"most_allocated"`
	// Proof is whether all that worked as recorded still does.
	Proof *proof `json:"proof"`
}
