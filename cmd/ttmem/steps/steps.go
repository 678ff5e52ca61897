// Package steps measures what each step of a process, such as a test, allocated and did not free.
package steps

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/document"
	"ttmem/cmd/ttmem/page"
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
	// Lost is the number of lost events; if it is not 0, the other figures may be wrong.
	Lost uint64 `json:"lost"`
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
}

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
}

// A Follower measures the steps of one process.
type Follower struct {
	// Clock relates the times of steps to the wall clock.
	Clock page.Clock
	// Handle takes an event.
	Handle func(*event.Event)

	mu      sync.Mutex // for out
	out     io.Writer
	state   *aggregate.State
	current Step
	began   *memory.Snapshot // of the current step's beginning

	requests chan request // in the order of their marks
	next     *request     // the first, taken from the channel
}

// request is a line of the input.
type request struct {
	name string
	ends bool
}

// mark returns the name of the request's mark. The name of a test may be too long for a mark, or
// have other characters.
func (w request) mark() string {
	name := []rune(page.Clean(w.name))
	if len(name) > stepMark {
		name = append(name[:stepMark], '…')
	}
	if w.ends {
		return string(name) + memory.StepEnd
	}
	return string(name) + memory.StepBegin
}

// stepMark is the number of characters of a step's name in the name of its mark.
const stepMark = 100

// New returns a follower that writes answers to out.
func New(out io.Writer) *Follower {
	s := &Follower{out: out, state: aggregate.New(), requests: make(chan request, 64)}
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

// parseStep parses a line of the input. name is the current step, or the last one; "" if there is
// none.
func parseStep(line, name string, running bool) (request, error) {
	verb, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	switch {
	case verb == "begin" && page.Clean(rest) == "":
		return request{}, errors.New("begin without a name: a line is `begin NAME` or `end`")
	case verb == "begin" && running:
		return request{}, fmt.Errorf("begin %s: %s has not ended", rest, name)
	case verb == "begin":
		return request{name: rest}, nil
	case verb != "end" || rest != "":
		return request{}, fmt.Errorf("%q: a line is `begin NAME` or `end`", line)
	case name == "":
		return request{}, errors.New("end: no step has begun")
	}
	return request{name: name, ends: true}, nil
}

// Listen takes the input and puts a mark for each line between the events.
func (s *Follower) Listen(in io.Reader, mark func(string) error) error {
	name, running := "", false
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		r, err := parseStep(lines.Text(), name, running)
		if err != nil {
			s.answer(struct {
				Error string `json:"error"`
			}{err.Error()})
			continue
		}
		name, running = r.name, !r.ends
		s.requests <- r
		if err := mark(r.mark()); err != nil {
			return err
		}
		if running {
			s.answer(struct {
				Began string `json:"began"`
			}{name})
		}
	}
	return lines.Err()
}

// apply handles an event after it was applied to the state.
func (s *Follower) apply(e *event.Event) {
	switch e.Kind {
	case event.Checkpoint: // of a step that has begun, the state follows nothing any more
		s.state.FollowFrom(s.current.BeginNs)
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
	if s.next.mark() != e.Cause {
		return
	}
	r := *s.next
	s.next = nil
	if r.ends {
		s.end(e.TimeNs)
	} else {
		s.begin(r.name, e.TimeNs)
	}
}

func (s *Follower) begin(name string, timeNs uint64) {
	s.current = Step{Step: name, BeginNs: timeNs}
	s.state.FollowFrom(timeNs)
	s.state.RestartPeaks()
	s.began = s.state.Snapshot()
}

func (s *Follower) end(timeNs uint64) {
	s.state.Settle() // the calls of the step have returned
	one, now := &s.current, s.state.Snapshot()
	one.EndNs, one.Lost = timeNs, now.LostEvents-min(s.began.LostEvents, now.LostEvents)
	one.Peaks, one.Left = peaks(s.began, now), s.left()
	s.answer(one)
}

// peaks returns the use of each region of each chip between two moments.
func peaks(began, now *memory.Snapshot) []stepPeak {
	list := []stepPeak{}
	for i := range now.Devices {
		d, before := &now.Devices[i], &memory.Device{}
		if at := slices.IndexFunc(began.Devices, func(b memory.Device) bool { return b.ID == d.ID }); at >= 0 {
			before = &began.Devices[at]
		}
		for _, region := range page.Regions {
			a, b := page.UseOf(before, region), page.UseOf(d, region)
			if b.CapacityBytes == 0 && b.PeakBytes == 0 {
				continue // the chip does not have it
			}
			list = append(list, stepPeak{d.ID, region.String(), a.Bytes, b.PeakBytes, b.PeakTimeNs, b.Bytes, b.CapacityBytes, b.AtLeast})
		}
	}
	return list
}

// left returns the memory that the step allocated and did not free, by stack and region. Memory
// that ended with its device or process was not freed: a fixture that closes the device hides no
// leak.
func (s *Follower) left() []stepLeft {
	type key struct {
		stack  *event.Stack
		region event.Region
	}
	sums := make(map[key]*stepLeft)
	survivors, _ := s.state.Between(nil, nil)
	for i := range survivors {
		v := &survivors[i]
		if v.Count == 0 {
			continue
		}
		k := key{v.Stack, v.Region}
		one := sums[k]
		if one == nil {
			frames := v.Stack.Frames()
			one = &stepLeft{Region: v.Region.String(), Name: name.Of(frames).String(), Calls: []string{}}
			class := name.ClassOf(frames, v.Region)
			if one.Class = class.String(); class.Retained() {
				one.Kept = one.Class
			}
			for _, c := range name.UserCalls(withoutRunner(frames)) {
				one.Calls = append(one.Calls, c.String())
			}
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
