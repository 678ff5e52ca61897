// Package export writes what aggregate knows in the formats of other programs:
// folded stacks, pprof, and a flame graph for a browser.
package export

import (
	"fmt"
	"path"
	"strings"
	"time"
	"unicode"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Options say what is written of a profile. The zero value is usable.
type Options struct {
	// Value is what Folded writes and what FlameGraph shows first.
	Value Value
	// Begun is when tracing began, by the wall clock; zero where it is not to
	// be told.
	Begun time.Time
}

// A Value is one of the figures that a profile has of each stack. The zero
// Value is PeakBytes.
type Value int

// The values, in bytes or as a number of buffers, circular buffers and
// programs with kernels; see memory.Sample for what they are of.
const (
	PeakBytes Value = iota
	LiveBytes
	AllocatedBytes
	PeakCount
	LiveCount
	AllocatedCount
)

var valueNames = [...]string{
	PeakBytes: "peak-bytes", LiveBytes: "live-bytes", AllocatedBytes: "allocated-bytes",
	PeakCount: "peak-count", LiveCount: "live-count", AllocatedCount: "allocated-count",
}

// String is the name of the value on the command line.
func (v Value) String() string {
	if v < 0 || int(v) >= len(valueNames) {
		return fmt.Sprintf("Value(%d)", int(v))
	}
	return valueNames[v]
}

// ValueNames are the names that ParseValue knows.
func ValueNames() []string { return valueNames[:] }

// ParseValue returns the value of that name.
func ParseValue(name string) (Value, error) {
	for v, n := range valueNames {
		if n == name {
			return Value(v), nil
		}
	}
	return 0, fmt.Errorf("no such value %q: one of %s", name, strings.Join(valueNames[:], ", "))
}

// of is the value of a sample.
func (v Value) of(s *memory.Sample) uint64 {
	switch v {
	case LiveBytes:
		return s.Live.Bytes
	case AllocatedBytes:
		return s.Allocated.Bytes
	case PeakCount:
		return s.Peak.Count
	case LiveCount:
		return s.Live.Count
	case AllocatedCount:
		return s.Allocated.Count
	}
	return s.Peak.Bytes
}

// noStack stands in place of the frames of what came without a stack.
const noStack = "[no stack]"

// unknown is a function of which nothing is known.
const unknown = "[unknown]"

// frames are the calls of a sample, innermost first. There is always one.
func frames(s *memory.Sample) []event.Frame {
	if list := s.Stack.Frames(); len(list) > 0 {
		return list
	}
	return []event.Frame{{Name: noStack}}
}

// functionName is the name of the frame's function, or where it is.
func functionName(f *event.Frame) string {
	switch {
	case f.Name != "":
		return f.Name
	case f.Module != "" && f.Address != 0:
		return fmt.Sprintf("%s+%#x", f.Module, f.Address)
	case f.Module != "":
		return "[" + f.Module + "]"
	case f.Address != 0:
		return fmt.Sprintf("%#x", f.Address)
	}
	return unknown
}

// frameText is how a frame is shown in one line: a function of Python with its
// file and line, as functions there are often called the same.
func frameText(f *event.Frame) string {
	name := functionName(f)
	switch {
	case f.Kind != event.Python || f.File == "":
		return name
	case f.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", name, path.Base(f.File), f.Line)
	}
	return fmt.Sprintf("%s (%s)", name, path.Base(f.File))
}

// names are what processes and devices are called.
type names map[int]string

func processNames(p *memory.Profile) names {
	list := make(names)
	for _, process := range p.Processes {
		list[process.PID] = process.Comm
		if process.Comm == "" {
			list[process.PID] = unknown
		}
	}
	return list
}

// process is "python3 (1234)".
func (n names) process(pid int) string { return fmt.Sprintf("%s (%d)", n[pid], pid) }

// deviceName is "device 0".
func deviceName(id int) string {
	if id == memory.NoDevice {
		return "unknown device"
	}
	return fmt.Sprintf("device %d", id)
}

// oneLine replaces what would end a line or do something to a terminal: names
// come from the traced programs.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// distinct counts the stacks that are different; samples without one count as
// one.
type distinct map[uint64]struct{}

func (d distinct) add(s *event.Stack) {
	var id uint64
	if s != nil {
		id = s.ID
	}
	d[id] = struct{}{}
}
