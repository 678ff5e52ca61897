package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A moment is a time in a file, at which its state is looked at. Its zero value is what
// is left: the end, with what nobody had freed when its device was closed or its process
// ended.
type moment struct {
	text string
	// end is the end without what went with devices and processes, and begin the moment
	// before anything happened.
	end, begin bool
	peak       bool
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
const momentUsage = "begin, end, peak, a mark's name (NAME#2 is the second of that name), failure (of an allocation), or a time after the first event such as 2.5s"

// errLeft says that what is left is no moment.
var errLeft = errors.New("--at left: only diff takes left, the end with what was never freed; a mark of this name is mark:left")

// parseMoment reads a moment: the name of a mark, but for "begin", "end", "left", "peak",
// "failure" and times, which mark:NAME names too.
func parseMoment(flag, text string) (moment, error) {
	m := moment{text: text}
	name, marked := strings.CutPrefix(text, "mark:")
	if !marked {
		switch text {
		case "left":
			return m, nil
		case "end":
			m.end = true
			return m, nil
		case "begin":
			m.begin = true
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

// atEnd reports whether it is the end, with what is left or without.
func (m *moment) atEnd() bool { return m.end || m.left() }

// left reports whether what nobody had freed belongs to it.
func (m *moment) left() bool {
	return !m.end && !m.begin && !m.peak && !m.failure && m.mark == "" && !m.timed
}

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
	case m.begin:
		return "at the beginning"
	case m.end:
		return "at the end"
	case m.peak:
		return "at the peak of each region"
	case m.failure && m.nth > 0:
		return "at the " + page.Ordinal(m.nth) + " failure"
	case m.failure && m.last:
		return "at the last failure"
	case m.failure:
		return "at the first failure"
	case m.mark != "":
		return "at the mark " + strings.TrimPrefix(m.text, "mark:")
	case m.timed:
		return fmt.Sprintf("%v after the first event", m.after)
	}
	return "at the end, with what nobody had freed"
}

// of is the moment of a file in a sentence: "at the end of model.ttmem".
func (m *moment) of(path string) string {
	if m.begin || m.end {
		return m.String() + " of " + shownName(path)
	}
	return m.String() + ", of " + shownName(path)
}

// A wantedFunc reports whether a region of a chip is looked at.
type wantedFunc func(device int, region event.Region) bool

// A stop is an event after which a state is looked at, and the regions for which.
type stop struct {
	of     int // the moment
	event  uint64
	wanted wantedFunc
}

func everyEvent(handle func(*event.Event)) func(*event.Event) { return handle }

func everyRegion(int, event.Region) bool { return true }

// visit plays a file. reached is called at each moment, by its index, with the state and
// the regions that it is of: several times where regions have their peaks at
// different times. each, which may be nil, is called with every event, complete, and what
// it implies; only leaves out events.
func visit(path string, moments []moment, only func(func(*event.Event)) func(*event.Event), each func(*event.Event), reached func(i int, s *aggregate.State, wanted wantedFunc)) (*watched, *aggregate.State, error) {
	var stops []stop
	if slices.ContainsFunc(moments, func(m moment) bool { return !m.atEnd() }) {
		var err error
		if stops, err = surveyed(path, moments, only); err != nil {
			return nil, nil, err
		}
	}
	read := func(handle func(*event.Event)) (*watched, error) { return watchFile(path, handle, func() {}) }
	return visitStops(path, moments, stops, read, only, each, reached)
}

// visitEnd is visit of the end: each is called with what came since the last checkpoint
// in the file, and with what the checkpoint tells of.
func visitEnd(path string, only func(func(*event.Event)) func(*event.Event), each func(*event.Event), reached func(i int, s *aggregate.State, wanted wantedFunc)) (*watched, *aggregate.State, error) {
	read := func(handle func(*event.Event)) (*watched, error) { return watchEnd(path, handle) }
	return visitStops(path, []moment{{end: true}}, nil, read, only, each, reached)
}

func visitStops(path string, moments []moment, stops []stop, read func(func(*event.Event)) (*watched, error), only func(func(*event.Event)) func(*event.Event), each func(*event.Event), reached func(i int, s *aggregate.State, wanted wantedFunc)) (*watched, *aggregate.State, error) {
	state := aggregate.New()
	apply := state.Apply
	if each != nil {
		apply = applying(state, each)
	}
	var n uint64
	reach := func() {
		for len(stops) > 0 && stops[0].event == n {
			reached(stops[0].of, state, stops[0].wanted)
			stops = stops[1:]
		}
	}
	reach() // what is before the first event
	w, err := read(only(func(e *event.Event) {
		n++
		apply(e)
		reach()
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
