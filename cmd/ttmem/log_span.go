package main

import (
	"errors"
	"fmt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// span is from when to when events are listed, in ns after the first one; until is 0 where
// there is no end.
func (o *logOptions) span() (since, until uint64, err error) {
	if since, err = o.after("from", o.from, false); err != nil {
		return 0, 0, err
	}
	if until, err = o.after("to", o.to, true); err != nil {
		return 0, 0, err
	}
	if o.to != "" && o.to != atEnd && until <= since {
		return 0, 0, fmt.Errorf("--to %s is not after --from %s", o.to, o.from)
	}
	return since, until, nil
}

// after is how long after the first event a moment is, in ns; 0 where there is none. last is
// true where the last mark of a name is meant, and not the first.
func (o *logOptions) after(flag, text string, last bool) (uint64, error) {
	if text == "" || last && text == atEnd {
		return 0, nil
	}
	m, err := parseMoment(flag, text)
	m.last = last
	switch {
	case err != nil:
		return 0, err
	case m.timed:
		return uint64(m.after), nil
	case m.begin && !last:
		return 0, nil
	case m.begin, m.atEnd(), m.peak:
		return 0, fmt.Errorf("--%s %s: give a mark, failure or a time after the first event such as 2.5s", flag, text)
	case o.source.file == "":
		return 0, fmt.Errorf("--%s %s: marks and failures are looked up in a recording; while something runs, give a time such as 2.5s", flag, text)
	}
	return timeOf(o.source.file, m)
}

// timeOf is how long after the first event of a file a moment is, in ns.
func timeOf(path string, m moment) (uint64, error) {
	var first, at uint64
	seen := false
	each := func(e *event.Event) {
		if !seen {
			first, seen = e.TimeNs, true
		}
	}
	reached := func(_ int, s *aggregate.State, _ wantedFunc) { at = s.Snapshot().TimeNs }
	if _, _, err := visit(path, []moment{m}, everyEvent, each, reached); err != nil {
		return 0, err
	}
	if at < first {
		return 0, errors.New(path + ": " + m.text + " is before the first event")
	}
	return at - first, nil
}
