package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// A moment is a time in a file, at which its state is looked at. Its zero value is the
// end.
type moment struct {
	text string
	peak bool
	// failure is true for a request for memory that failed.
	failure bool
	// mark is the name of a mark, and nth which of that name, or of the failures: 0 is
	// the first or, where last is true, the last.
	mark string
	nth  int
	last bool
	// after is a time after the first event, where timed is true.
	after time.Duration
	timed bool
}

// momentUsage says how moments are written.
const momentUsage = "end, peak, a mark's name (NAME#2 is the second of that name), failure (of an allocation; failure#2 is the second), or a time after the first event such as 2.5s"

// parseMoment reads a moment: the name of a mark, but for "end", "peak", "failure" and
// times, which mark:NAME names too.
func parseMoment(flag, text string) (moment, error) {
	m := moment{text: text}
	name, marked := strings.CutPrefix(text, "mark:")
	if !marked {
		switch text {
		case "end":
			return m, nil
		case "peak":
			m.peak = true
			return m, nil
		case "":
			return m, fmt.Errorf("--%s: give %s", flag, momentUsage)
		}
		if d, err := time.ParseDuration(text); err == nil {
			if d < 0 {
				return m, fmt.Errorf("--%s %s: a time after the first event: it must not be negative", flag, text)
			}
			m.after, m.timed = d, true
			return m, nil
		}
	}
	m.mark = name
	if i := strings.LastIndexByte(name, '#'); i > 0 {
		if n, err := strconv.Atoi(name[i+1:]); err == nil && n > 0 {
			m.mark, m.nth = name[:i], n
		}
	}
	if !marked && m.mark == "failure" {
		m.mark, m.failure = "", true
	}
	return m, nil
}

func (m *moment) atEnd() bool { return !m.peak && !m.failure && m.mark == "" && !m.timed }

// which is the one of so many that is meant, from 1.
func (m *moment) which(n int) int {
	if m.nth == 0 && m.last {
		return max(n, 1)
	}
	return max(m.nth, 1)
}

// String is the moment in a sentence.
func (m *moment) String() string {
	switch {
	case m.peak:
		return "at the peak of each region"
	case m.failure && m.nth > 0:
		return "at the " + ordinal(m.nth) + " failure"
	case m.failure && m.last:
		return "at the last failure"
	case m.failure:
		return "at the first failure"
	case m.mark != "":
		return "at the mark " + strings.TrimPrefix(m.text, "mark:")
	case m.timed:
		return fmt.Sprintf("%v after the first event", m.after)
	}
	return "at the end"
}

// A stop is an event after which a state is looked at, and the regions for which.
type stop struct {
	of     int // the moment
	event  uint64
	wanted func(event.Region) bool
}

func everyEvent(handle func(*event.Event)) func(*event.Event) { return handle }

func everyRegion(event.Region) bool { return true }

// survey finds the moments in a file, but for its end: stops in the order of events.
func survey(path string, moments []moment, only func(func(*event.Event)) func(*event.Event)) (stops []stop, err error) {
	type markAt struct {
		name  string
		event uint64
	}
	var (
		marks        []markAt
		failures     []uint64
		peaks        [event.NumRegions]struct{ bytes, event uint64 }
		n            uint64
		begin, until uint64
	)
	times := make([]uint64, len(moments)) // the last event of each that is timed
	apply := func(e *event.Event) {
		if n++; n == 1 {
			begin = e.TimeNs
		}
		until = max(until, e.TimeNs)
		switch e.Kind {
		case event.Mark:
			marks = append(marks, markAt{e.Cause, n})
		case event.AllocFailed:
			failures = append(failures, n)
		}
		for i := range moments {
			if moments[i].timed && e.TimeNs <= begin+uint64(moments[i].after) {
				times[i] = n
			}
		}
	}
	if slices.ContainsFunc(moments, func(m moment) bool { return m.peak }) {
		state, count := aggregate.New(), apply
		applied := applying(state, func(e *event.Event) {
			if e.Kind != event.Alloc && e.Kind != event.CBAlloc {
				return
			}
			if r := regionOf(e); int(r) < len(peaks) {
				if bytes := state.InUse(r); bytes > peaks[r].bytes {
					peaks[r].bytes, peaks[r].event = bytes, n
				}
			}
		})
		apply = func(e *event.Event) { count(e); applied(e) }
	}
	if _, err := watchFile(path, only(apply), func() {}); err != nil {
		return nil, err
	}
	for i := range moments {
		switch m := &moments[i]; {
		case m.peak:
			for r := range peaks {
				if peaks[r].event > 0 {
					stops = append(stops, stop{i, peaks[r].event, func(region event.Region) bool { return region == event.Region(r) }})
				}
			}
		case m.failure:
			switch nth := m.which(len(failures)); {
			case len(failures) == 0:
				return nil, fmt.Errorf("no allocation failed in %s", path)
			case nth > len(failures):
				return nil, fmt.Errorf("no %s in %s: %s failed", m.text, path, formatCount(uint64(len(failures)), "allocation"))
			default:
				stops = append(stops, stop{i, failures[nth-1], everyRegion})
			}
		case m.mark != "":
			var named []uint64
			var names []string
			for _, at := range marks {
				if at.name == m.mark {
					named = append(named, at.event)
				}
				if name := plain(at.name); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
			nth := m.which(len(named))
			switch {
			case len(marks) == 0:
				return nil, fmt.Errorf("no mark %s in %s: it has no marks at all; `ttmem mark NAME` sets them while it is recorded", m.mark, path)
			case len(named) == 0:
				return nil, fmt.Errorf("no mark %s in %s: there are %s", m.mark, path, strings.Join(names, ", "))
			case nth > len(named):
				return nil, fmt.Errorf("no mark %s in %s: there are %d of that name", m.text, path, len(named))
			}
			stops = append(stops, stop{i, named[nth-1], everyRegion})
		case m.timed:
			if length := until - begin; uint64(m.after) > length {
				return nil, fmt.Errorf("%s has nothing %v after its first event: the last is at %s", path, m.after, time.Duration(length).Round(time.Microsecond))
			}
			stops = append(stops, stop{i, times[i], everyRegion})
		}
	}
	slices.SortStableFunc(stops, func(a, b stop) int { return cmp.Compare(a.event, b.event) })
	return stops, nil
}

// visit plays a file. reached is called at each moment, by its index, with the state and
// the regions that it is of: once for each region, where these have their peaks at
// different times. each is called with every event, complete, and what it implies; only
// leaves out events.
func visit(path string, moments []moment, only func(func(*event.Event)) func(*event.Event), each func(*event.Event), reached func(i int, s *aggregate.State, wanted func(event.Region) bool)) (*watched, *aggregate.State, error) {
	var stops []stop
	if slices.ContainsFunc(moments, func(m moment) bool { return !m.atEnd() }) {
		var err error
		if stops, err = survey(path, moments, only); err != nil {
			return nil, nil, err
		}
	}
	read := func(handle func(*event.Event)) (*watched, error) { return watchFile(path, handle, func() {}) }
	return visitStops(path, moments, stops, read, only, each, reached)
}

// visitEnd is visit of the end: each is called with what came since the last checkpoint
// in the file, and with what the checkpoint tells of.
func visitEnd(path string, only func(func(*event.Event)) func(*event.Event), each func(*event.Event), reached func(i int, s *aggregate.State, wanted func(event.Region) bool)) (*watched, *aggregate.State, error) {
	read := func(handle func(*event.Event)) (*watched, error) { return watchEnd(path, handle) }
	return visitStops(path, []moment{{}}, nil, read, only, each, reached)
}

func visitStops(path string, moments []moment, stops []stop, read func(func(*event.Event)) (*watched, error), only func(func(*event.Event)) func(*event.Event), each func(*event.Event), reached func(i int, s *aggregate.State, wanted func(event.Region) bool)) (*watched, *aggregate.State, error) {
	state := aggregate.New()
	apply := applying(state, each)
	var n uint64
	w, err := read(only(func(e *event.Event) {
		n++
		apply(e)
		for len(stops) > 0 && stops[0].event == n {
			reached(stops[0].of, state, stops[0].wanted)
			stops = stops[1:]
		}
	}))
	if err != nil {
		return nil, nil, err
	}
	if n == 0 {
		return nil, nil, errors.New(path + " has no events")
	}
	for i := range moments {
		if moments[i].atEnd() {
			reached(i, state, everyRegion)
		}
	}
	return w, state, nil
}
