// Package steps measures what each step of a process, such as a test, allocated and did not free.
package steps

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Step is the answer of `ttmem steps` to the end of a step.
type Step struct {
	Step    string `json:"step"`
	BeginNs uint64 `json:"begin_ns" wall:"begin_wall_ns"`
	EndNs   uint64 `json:"end_ns" wall:"end_wall_ns"`
	// Peaks are the highest use of each region of each chip during the step, including memory
	// that was live at its beginning.
	Peaks []stepPeak `json:"peaks"`
	// Left is the memory that the step allocated and did not free, by call stack, largest first.
	// Memory that ended with its device or process counts as not freed.
	Left []stepLeft `json:"left"`
	// Failures are the failed allocations in the step, oldest first: at most the latest 1000.
	Failures []stepFailure `json:"failures"`
	// Lost is the number of lost events; if it is not 0, the other figures may be wrong.
	Lost uint64 `json:"lost"`
}

// Peaks is the answer to `peaks` and `reset`: the use of each region of each chip since the last reset or,
// without one, since tracing began.
type Peaks struct {
	Peaks   []stepPeak `json:"peaks"`
	SinceNs uint64     `json:"since_ns" wall:"since_wall_ns"`
	Lost    uint64     `json:"lost"`
}

// A stepPeak is the use of a region. That of L1 is of the fullest core and includes circular buffers;
// that of other regions is of all banks.
type stepPeak struct {
	Device        int    `json:"device"`
	Region        string `json:"region" schema:"banked_region"`
	BeginBytes    uint64 `json:"begin_bytes"`
	PeakBytes     uint64 `json:"peak_bytes"`
	PeakTimeNs    uint64 `json:"peak_time_ns" wall:"peak_wall_ns"`
	EndBytes      uint64 `json:"end_bytes"`
	CapacityBytes uint64 `json:"capacity_bytes"`
	// AtLeast is true if the peak may have been higher: programs may have run that were not reported.
	AtLeast bool `json:"at_least,omitempty"`
	// Lines are what the peak of a step was made of, by line and operation: the ten largest.
	Lines []stepLine `json:"lines,omitempty"`
}

// A stepLine is a part of a peak: of L1, on the fullest core.
type stepLine struct {
	Bytes   uint64 `json:"bytes"`
	Buffers uint64 `json:"buffers"`
	Name    string `json:"name"`
	// Static is the kind of a program's own memory; "" for buffers.
	Static string `json:"static,omitempty"`
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
}

// mostLines is how many lines a peak has.
const mostLines = 10

type stepLeft struct {
	Region string `json:"region" schema:"banked_region"`
	// Bytes is over all banks and chips.
	Bytes   uint64 `json:"bytes"`
	Buffers uint64 `json:"buffers"`
	Name    string `json:"name"`
	// Kept is the kind of memory that the runtime retains; "" for the program's own.
	Kept string `json:"kept,omitempty"`
	// Class is what the buffers are for; "" if that is not known.
	Class string   `json:"class,omitempty" schema:"class"`
	Calls []string `json:"calls"`
	// File and Line are those of the first of Calls.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

type stepFailure struct {
	TimeNs  uint64 `json:"time_ns" wall:"wall_ns"`
	Devices []int  `json:"devices"`
	Region  string `json:"region" schema:"region"`
	Reason  string `json:"reason,omitempty"`
	// SizeBytes is the requested size on each chip.
	SizeBytes uint64   `json:"size_bytes,omitempty"`
	Message   string   `json:"message,omitempty"`
	Name      string   `json:"name"`
	Calls     []string `json:"calls"`
	File      string   `json:"file,omitempty"`
	Line      int      `json:"line,omitempty"`
}

// A span is what is measured: a step, or the time since the last reset.
type span struct {
	id      uint64
	name    string
	beginNs uint64
	peaks   []stepPeak
	ended   bool
	// lost are the events that were lost before it.
	lost uint64
}

// A Follower measures the steps of one process.
type Follower struct {
	// Clock relates the times of steps to the wall clock.
	Clock page.Clock
	// Handle takes an event.
	Handle func(*event.Event)
	// Now, if set, is the clock of events: a mark from before a request is another program's.
	Now func() uint64

	mu    sync.Mutex // for out
	out   io.Writer
	state *aggregate.State
	// spans are the running steps, oldest first, and the last one that ended, which may be measured again.
	spans []*span
	reset span // since the last reset

	requests chan request // in the order of their marks
	next     *request     // the first, taken from the channel
}

// The lines of the input.
const (
	begin = "begin"
	end   = "end"
	peaks = "peaks"
	reset = "reset"
	usage = "a line is `begin NAME`, `end`, `end ID`, `peaks` or `reset`"
)

// request is a line of the input.
type request struct {
	verb string
	id   uint64 // of the step
	name string
	ns   uint64
}

// mark returns the name of the request's mark. The name of a test may be too long for a mark, or
// have other characters.
func (r request) mark() string {
	name := []rune(page.Clean(r.name))
	if len(name) > stepMark {
		name = append(name[:stepMark], '…')
	}
	switch r.verb {
	case begin:
		return string(name) + memory.StepBegin
	case end:
		return string(name) + memory.StepEnd
	}
	return memory.ReadingMark
}

// stepMark is the number of characters of a step's name in the name of its mark.
const stepMark = 100

// New returns a follower that writes answers to out.
func New(out io.Writer) *Follower {
	s := &Follower{out: out, state: aggregate.New(), reset: span{peaks: []stepPeak{}}, requests: make(chan request, 64)}
	s.Handle = s.state.Completed(s.apply)
	return s
}

// Ready reports that steps can begin.
func (s *Follower) Ready() {
	s.answer(struct {
		V     int  `json:"v"`
		Ready bool `json:"ready"`
	}{1, true})
}

func (s *Follower) answer(v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = document.Write(s.out, v, &page.Supplement{Clock: s.Clock}) // if the reader is gone, the input ends too
}

// A reader reads the input, and knows which steps run.
type reader struct {
	steps   []request // that run, oldest first
	last    request   // the step that ended last
	counted uint64
}

// parse parses a line of the input.
func (r *reader) parse(line string) (request, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case verb == begin && page.Clean(rest) == "":
		return request{}, errors.New("begin without a name: " + usage)
	case verb == begin:
		r.counted++
		one := request{verb: begin, id: r.counted, name: rest}
		r.steps, r.last = append(r.steps, one), request{}
		return one, nil
	case (verb == peaks || verb == reset) && rest == "":
		return request{verb: verb}, nil
	case verb != end:
		return request{}, fmt.Errorf("%q: %s", line, usage)
	}
	id, err := strconv.ParseUint(rest, 10, 64)
	at := len(r.steps) - 1
	switch {
	case rest == "" && at < 0 && r.last.id == 0:
		return request{}, errors.New("end: no step has begun")
	case rest == "" && at < 0:
		return r.last, nil
	case rest == "":
	case err != nil:
		return request{}, fmt.Errorf("%q: %s", line, usage)
	default:
		at = slices.IndexFunc(r.steps, func(s request) bool { return s.id == id })
		if at < 0 && id == r.last.id && id > 0 {
			return r.last, nil
		}
		if at < 0 {
			return request{}, fmt.Errorf("end %d: no such step runs", id)
		}
	}
	r.last = r.steps[at]
	r.last.verb = end
	r.steps = slices.Delete(r.steps, at, at+1)
	return r.last, nil
}

// Listen takes the input and puts a mark for each line between the events.
func (s *Follower) Listen(in io.Reader, mark func(string) error) error {
	var known reader
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r, err := known.parse(lines.Text())
		if err != nil {
			s.answer(struct {
				Error string `json:"error"`
			}{err.Error()})
			continue
		}
		if s.Now != nil {
			r.ns = s.Now()
		}
		s.requests <- r
		if err := mark(r.mark()); err != nil {
			return err
		}
		if r.verb == begin {
			s.answer(struct {
				Began string `json:"began"`
				ID    uint64 `json:"id"`
			}{r.name, r.id})
		}
	}
	return lines.Err()
}

// apply handles an event after it was applied to the state.
func (s *Follower) apply(e *event.Event) {
	switch e.Kind {
	case event.Checkpoint: // of a step that has begun, the state follows nothing any more
		if len(s.spans) > 0 {
			s.state.FollowFrom(s.spans[0].beginNs)
		}
		s.state.RestartPeaks()
		return
	case event.Mark:
	default:
		return
	}
	if s.next == nil {
		select {
		case r := <-s.requests:
			s.next = &r
		default:
			return // another program's mark
		}
	}
	if s.next.mark() != e.Cause || e.TimeNs < s.next.ns {
		return
	}
	r := *s.next
	s.next = nil
	now := s.measure()
	switch r.verb {
	case begin:
		s.begin(r, e.TimeNs)
		return
	case end:
		s.end(r, e.TimeNs, now)
		return
	case reset:
		s.reset = *s.newSpan(e.TimeNs)
	}
	s.answer(&Peaks{s.reset.peaks, s.reset.beginNs, now.LostEvents - min(s.reset.lost, now.LostEvents)})
}

// measure adds the use until now to all that is measured.
func (s *Follower) measure() *memory.Snapshot {
	s.state.Settle() // the calls before the mark have returned
	now := s.state.Snapshot()
	for _, one := range append(slices.Clip(s.spans), &s.reset) {
		one.peaks = withUse(one.peaks, now)
	}
	s.addLines()
	return now
}

// addLines adds the lines to peaks of steps that are those of the state, and have none.
func (s *Follower) addLines() {
	var peaks []memory.RegionPeak
	for _, one := range s.spans {
		for i := range one.peaks {
			p := &one.peaks[i]
			if p.PeakBytes == 0 || p.Lines != nil {
				continue
			}
			if peaks == nil {
				peaks = s.state.RegionPeaks()
			}
			at := slices.IndexFunc(peaks, func(r memory.RegionPeak) bool { return r.Device == p.Device && r.Region.String() == p.Region })
			if at >= 0 && peaks[at].Bytes == p.PeakBytes {
				p.Lines = linesOf(&peaks[at])
			}
		}
	}
}

// linesOf returns the largest lines of a peak.
func linesOf(peak *memory.RegionPeak) []stepLine {
	type key struct{ name, static string }
	sums := make(map[key]*stepLine)
	add := func(stack *event.Stack, static event.StaticKind, count, bytes uint64) {
		frames := stack.Frames()
		k := key{name.Of(frames).String(), static.String()}
		if sums[k] == nil {
			sums[k] = &stepLine{Name: k.name, Static: k.static}
			_, sums[k].File, sums[k].Line = calls(frames)
		}
		sums[k].Buffers, sums[k].Bytes = sums[k].Buffers+count, sums[k].Bytes+bytes
	}
	for i := range peak.Holders {
		add(peak.Holders[i].Stack, event.NotStatic, peak.Holders[i].Count, peak.Holders[i].Bytes)
	}
	for i := range peak.Programs {
		add(peak.Programs[i].Stack, peak.Programs[i].Kind, peak.Programs[i].Count, peak.Programs[i].Bytes)
	}
	list := []stepLine{}
	for _, one := range sums {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b stepLine) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Static, b.Static))
	})
	return list[:min(len(list), mostLines)]
}

// newSpan begins at the present use.
func (s *Follower) newSpan(timeNs uint64) *span {
	s.state.RestartPeaks()
	now := s.state.Snapshot()
	return &span{beginNs: timeNs, peaks: withUse(nil, now), lost: now.LostEvents}
}

func (s *Follower) begin(r request, timeNs uint64) {
	s.spans = slices.DeleteFunc(s.spans, func(one *span) bool { return one.ended })
	if len(s.spans) == 0 {
		s.state.FollowFrom(timeNs)
	}
	one := s.newSpan(timeNs)
	one.id, one.name = r.id, r.name
	s.spans = append(s.spans, one)
}
func (s *Follower) end(r request, timeNs uint64, now *memory.Snapshot) {
	s.spans = slices.DeleteFunc(s.spans, func(one *span) bool { return one.ended && one.id != r.id })
	one := s.spans[slices.IndexFunc(s.spans, func(one *span) bool { return one.id == r.id })]
	one.ended = true
	s.answer(&Step{
		Step: one.name, BeginNs: one.beginNs, EndNs: timeNs, Peaks: one.peaks, Left: s.left(one.beginNs),
		Failures: failures(now, one.beginNs), Lost: now.LostEvents - min(one.lost, now.LostEvents),
	})
}

// withUse returns the use of each region of each chip before, or nil at a beginning, until now.
func withUse(before []stepPeak, now *memory.Snapshot) []stepPeak {
	list := []stepPeak{}
	for i := range now.Devices {
		d := &now.Devices[i]
		for _, region := range page.Regions {
			use := page.UseOf(d, region)
			if use.CapacityBytes == 0 && use.PeakBytes == 0 {
				continue // the chip does not have it
			}
			one := stepPeak{d.ID, region.String(), 0, use.PeakBytes, use.PeakTimeNs, use.Bytes, use.CapacityBytes, use.AtLeast, nil}
			if before == nil {
				one.BeginBytes = use.Bytes
			}
			if at := slices.IndexFunc(before, func(b stepPeak) bool { return b.Device == d.ID && b.Region == one.Region }); at >= 0 {
				b := before[at]
				one.BeginBytes, one.AtLeast = b.BeginBytes, one.AtLeast || b.AtLeast
				if b.PeakBytes >= one.PeakBytes {
					one.PeakBytes, one.PeakTimeNs, one.Lines = b.PeakBytes, b.PeakTimeNs, b.Lines
				}
			}
			list = append(list, one)
		}
	}
	return list
}

// failures returns the allocations that failed since a time.
func failures(now *memory.Snapshot, sinceNs uint64) []stepFailure {
	list := []stepFailure{}
	for i := range now.Failures {
		f := &now.Failures[i]
		if f.TimeNs <= sinceNs {
			continue
		}
		frames := f.Stack.Frames()
		one := stepFailure{
			TimeNs: f.TimeNs, Devices: f.Devices, Region: f.Region, Reason: f.Reason, SizeBytes: f.SizeBytes, Message: f.Message, Name: name.Of(frames).String(),
		}
		one.Calls, one.File, one.Line = calls(frames)
		list = append(list, one)
	}
	return list
}

// calls returns the user's own calls, and the place of the first.
func calls(frames []event.Frame) (list []string, file string, line int) {
	list = []string{}
	for i, c := range name.UserCalls(withoutRunner(frames)) {
		if i == 0 {
			file, line = c.File, c.Line
		}
		list = append(list, c.String())
	}
	return list, file, line
}

// left returns the memory that was allocated since a time and not freed, by stack and region. Memory
// that ended with its device or process was not freed: a fixture that closes the device hides no
// leak.
func (s *Follower) left(sinceNs uint64) []stepLeft {
	type key struct {
		stack  *event.Stack
		region event.Region
	}
	sums := make(map[key]*stepLeft)
	survivors, _ := s.state.Between(nil, memory.Intervals{{FromNs: sinceNs + 1, ToNs: math.MaxUint64}})
	for i := range survivors {
		v := &survivors[i]
		if v.Count == 0 {
			continue
		}
		k := key{v.Stack, v.Region}
		one := sums[k]
		if one == nil {
			frames := v.Stack.Frames()
			one = &stepLeft{Region: v.Region.String(), Name: name.Of(frames).String()}
			class := name.ClassOf(frames, v.Region)
			if one.Class = class.String(); class.Retained() {
				one.Kept = one.Class
			}
			one.Calls, one.File, one.Line = calls(frames)
			sums[k] = one
		}
		one.Bytes += v.Bytes
		one.Buffers += v.Count
	}
	list := []stepLeft{}
	for _, one := range sums {
		list = append(list, *one)
	}
	slices.SortFunc(list, func(a, b stepLeft) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Region, b.Region))
	})
	return list
}
