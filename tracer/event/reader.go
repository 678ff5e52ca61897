package event

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// A Reader reads the lines that Event.AppendJSON writes.
type Reader struct {
	lines *bufio.Reader
	line  int
}

// NewReader returns a Reader of the event records in r, one a line.
func NewReader(r io.Reader) *Reader {
	return &Reader{lines: bufio.NewReaderSize(r, 64<<10)}
}

// Next is the next event, or io.EOF after the last one. Any other error names
// the line, and reading can go on after it with the next one. A last line that
// was cut short (its writer was killed) is an error that wraps
// io.ErrUnexpectedEOF. Fields that this version does not know are ignored.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return Event{}, fmt.Errorf("line %d: %w", r.line+1, err)
		}
		if len(line) == 0 {
			return Event{}, io.EOF
		}
		r.line++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e, parseErr := parse(line)
		if parseErr != nil && err != nil && !json.Valid(line) {
			return Event{}, fmt.Errorf("line %d: the record is cut short: %w", r.line, io.ErrUnexpectedEOF)
		}
		if parseErr != nil {
			return Event{}, fmt.Errorf("line %d: %w", r.line, parseErr)
		}
		return e, nil
	}
}

// record is an event with the fields that take another form in a line.
type record struct {
	Event
	V          *int                `json:"v"`
	Region     *Region             `json:"region"`
	Cores      [][]uint16          `json:"cores"`
	Capacities map[string]Capacity `json:"capacities"`
	ExitStatus *int                `json:"exit_status"`
}

// parse makes an event of one line.
func parse(line []byte) (Event, error) {
	var rec record
	err := json.Unmarshal(line, &rec)
	// First the version: a newer one may have other types in its fields.
	if rec.V != nil && *rec.V != Version {
		return Event{}, fmt.Errorf("the record has version %d, this ttmem reads version %d", *rec.V, Version)
	}
	if err != nil {
		return Event{}, err
	}
	if rec.V == nil {
		return Event{}, errors.New(`not an event record: it has no "v"`)
	}
	return rec.event()
}

func (rec *record) event() (Event, error) {
	e := rec.Event
	if len(e.Devices) == 0 {
		e.Devices = nil
	}
	if len(e.Stack.Frames()) == 0 {
		e.Stack = nil
	}
	switch e.Kind {
	case 0:
		return Event{}, errors.New(`not an event record: it has no "kind"`)
	case Alloc, Free, AllocFailed:
		if rec.Region == nil {
			return Event{}, fmt.Errorf("%s without a region", e.Kind)
		}
	case ProcessExit:
		e.ExitStatus = UnknownStatus
		if rec.ExitStatus != nil {
			e.ExitStatus = *rec.ExitStatus
		}
	}
	if rec.Region != nil {
		e.Region = *rec.Region
	}
	for _, c := range rec.Cores {
		if len(c) != 4 {
			return Event{}, fmt.Errorf("cores: a range has %d numbers in place of x0, y0, x1, y1", len(c))
		}
		e.Cores = append(e.Cores, CoreRange{c[0], c[1], c[2], c[3]})
	}
	for r := range e.Capacities {
		e.Capacities[r] = rec.Capacities[Region(r).String()]
	}
	return e, nil
}

// UnmarshalText reads the name of a kind.
func (k *Kind) UnmarshalText(b []byte) error { return setNamed(k, "kind", kindNames[:Checkpoint], b) }

// UnmarshalText reads the name of a region.
func (r *Region) UnmarshalText(b []byte) error { return setNamed(r, "region", regionNames[:], b) }

// UnmarshalText reads the name of a layout.
func (l *Layout) UnmarshalText(b []byte) error { return setNamed(l, "layout", layoutNames[:], b) }

// UnmarshalText reads the name of a kind of static allocation.
func (s *StaticKind) UnmarshalText(b []byte) error {
	return setNamed(s, "static_kind", staticNames[:], b)
}

// UnmarshalText reads the name of a reason.
func (r *Reason) UnmarshalText(b []byte) error { return setNamed(r, "reason", reasonNames[:], b) }

// setNamed sets a value by its name; "" leaves it as it is.
func setNamed[T ~uint8](v *T, field string, names []string, name []byte) error {
	if len(name) == 0 {
		return nil
	}
	i := slices.Index(names, string(name))
	if i < 0 {
		return fmt.Errorf("unknown %s %q: a newer ttmem wrote it?", field, name)
	}
	*v = T(i)
	return nil
}
