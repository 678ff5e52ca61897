package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A survey is what there is to know of a file to find moments in it. Events are known by
// their number, from 1.
type survey struct {
	n            uint64
	first, until uint64 // times
	began        bool   // there is a first
	// begun is the last event of what was there before anything happened: of a
	// checkpoint that the file begins with, or of what was found in the memory of the
	// processes that ran already. That takes a while, in which they go on.
	begun   uint64
	going   bool         // something has happened
	running map[int]bool // those processes
	marks   []markAt
	// earlier are the names of marks that lie before the file begins: a checkpoint tells
	// of them, and not what there was then.
	earlier  []string
	failures []uint64
	peaks    map[peakPlace]peakAt
}

// A peakPlace is a region of a chip, and peakAt its peak: the event after which it was.
type (
	peakPlace struct {
		device int
		region event.Region
	}
	peakAt struct{ bytes, event uint64 }
)

type markAt struct {
	name  string
	event uint64
}

// surveyed finds the moments in a file, but for its end: stops in the order of events.
func surveyed(path string, moments []moment, only func(func(*event.Event)) func(*event.Event)) (stops []stop, err error) {
	if err := readOnce(path); err != nil {
		return nil, err
	}
	s := survey{running: make(map[int]bool), peaks: make(map[peakPlace]peakAt)}
	times := make([]uint64, len(moments)) // the last event of each that is timed
	apply := func(e *event.Event) {
		s.add(e)
		for i := range moments {
			if moments[i].timed && e.TimeNs <= s.first+uint64(moments[i].after) {
				times[i] = s.n
			}
		}
	}
	if slices.ContainsFunc(moments, func(m moment) bool { return m.peak }) {
		state, count := aggregate.New(), apply
		apply = func(e *event.Event) {
			count(e)
			state.Apply(e)
			s.addPeak(state, e)
		}
	}
	if _, err := watchFile(path, only(apply), func() {}); err != nil {
		return nil, err
	}
	for i := range moments {
		at, err := s.find(path, &moments[i], times[i])
		if err != nil {
			return nil, err
		}
		for _, one := range at {
			one.of = i
			stops = append(stops, one)
		}
	}
	slices.SortStableFunc(stops, func(a, b stop) int { return cmp.Compare(a.event, b.event) })
	return stops, nil
}

func (s *survey) add(e *event.Event) {
	s.n++
	if e.Kind == event.Checkpoint {
		before := aggregate.New()
		before.Apply(e)
		for _, mark := range before.Marks() {
			s.earlier = append(s.earlier, mark.Name)
		}
		s.begun, s.going = s.n, true
	}
	if !s.began {
		s.first, s.began = e.TimeNs, true
	}
	s.until = max(s.until, e.TimeNs)
	switch e.Kind {
	case event.Mark:
		s.marks = append(s.marks, markAt{e.Cause, s.n})
	case event.AllocFailed:
		s.failures = append(s.failures, s.n)
	}
	switch {
	case s.going:
		if e.BeforeAttach && s.running[e.PID] {
			s.begun = s.n
		}
	case happens(e):
		s.going = true
	default:
		s.begun = s.n
		if e.Kind == event.ProcessStart {
			s.running[e.PID] = true
		}
	}
}

// happens reports whether the event changes what is allocated, and does not tell of what
// was there before.
func happens(e *event.Event) bool {
	return e.Kind >= event.Alloc && e.Kind <= event.KernelUnload && !e.BeforeAttach
}

// addPeak notes which regions of chips are fuller than ever.
func (s *survey) addPeak(state *aggregate.State, e *event.Event) {
	region := e.Region
	switch e.Kind {
	case event.CBAlloc:
		region = event.L1 // which they are part of
	case event.Alloc:
	default:
		return
	}
	for _, id := range e.Devices {
		at := peakPlace{id, region}
		if bytes := state.PeakOf(id, region).Bytes; bytes > s.peaks[at].bytes {
			s.peaks[at] = peakAt{bytes, s.n}
		}
	}
}

// find is where the moment is: for the peak, once for each region. timed is the last
// event up to its time.
func (s *survey) find(path string, m *moment, timed uint64) (stops []stop, err error) {
	at := func(n uint64) []stop { return []stop{{event: n, wanted: everyRegion}} }
	switch {
	case m.begin:
		return at(s.begun), nil
	case m.peak:
		events := make(map[uint64]bool)
		for _, peak := range s.peaks {
			events[peak.event] = true
		}
		for n := range events {
			stops = append(stops, stop{event: n, wanted: func(device int, region event.Region) bool {
				if region == event.CB {
					region = event.L1
				}
				return s.peaks[peakPlace{device, region}].event == n
			}})
		}
		return stops, nil
	case m.failure:
		switch nth := m.which(len(s.failures)); {
		case len(s.failures) == 0:
			return nil, fmt.Errorf("no allocation failed in %s", path)
		case nth > len(s.failures):
			return nil, fmt.Errorf("no %s in %s: %s failed", m.text, path, page.Count(uint64(len(s.failures)), "allocation"))
		default:
			return at(s.failures[nth-1]), nil
		}
	case m.mark != "":
		n, err := s.mark(path, m)
		return at(n), err
	case m.timed:
		if length := s.until - s.first; uint64(m.after) > length {
			return nil, fmt.Errorf("%s has nothing %v after its first event: the last is at %s", path, m.after, time.Duration(length).Round(time.Microsecond))
		}
		return at(timed), nil
	}
	return nil, nil // the end
}

// mark is where the mark of the moment is.
func (s *survey) mark(path string, m *moment) (uint64, error) {
	var named []uint64
	var names []string
	for _, at := range s.marks {
		if at.name == m.mark {
			named = append(named, at.event)
		}
		if name := page.Clean(at.name); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	nth := m.which(len(named))
	switch {
	case len(named) == 0 && slices.Contains(s.earlier, m.mark):
		return 0, fmt.Errorf("no mark %s in %s: the mark %s lies before %s begins", m.text, path, page.Clean(m.mark), path)
	case len(s.marks) == 0:
		return 0, fmt.Errorf("no mark %s in %s: it has no marks at all; `ttmem mark NAME` sets them while it is recorded", m.mark, path)
	case len(named) == 0:
		return 0, fmt.Errorf("no mark %s in %s: there are %s", m.mark, path, page.Some(names, "mark"))
	case nth > len(named):
		return 0, fmt.Errorf("no mark %s in %s: there are %d of that name", m.text, path, len(named))
	}
	return named[nth-1], nil
}
