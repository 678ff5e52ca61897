// Package export writes profiles for pprof, and as folded stacks.
// It is not part of ttmem's Go library: it changes without notice.
package export

import (
	"fmt"
	"path"
	"slices"
	"time"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Options for writing a profile. The zero value is usable.
type Options struct {
	// Begun is when tracing began, by the wall clock; zero to leave it out.
	Begun time.Time
	// Of is the origin of the profile, for readers: "at the end of model.ttmem".
	Of string
	// Value is the name of the value that is written alone, or shown first; "" is the format's own
	// choice.
	Value string
	// AllFrames is true if Folded writes all frames, not only the user's own.
	AllFrames bool
	// Named is true if the user chose the Value.
	Named bool
	// Values are those that Pprof writes, of samples that have any of them; nil: all Values, of
	// all samples.
	Values []Value
}

// A Value is a figure of a sample, with the name that pprof has for such figures.
type Value struct {
	Name string
	// Unit is that of pprof: count or bytes.
	Unit string
	// Of returns the figure.
	Of func(*memory.Sample) uint64
}

// Values are the figures of profiles.
var Values = []Value{
	{"alloc_objects", "count", func(s *memory.Sample) uint64 { return s.Allocated.Count }},
	{"alloc_space", "bytes", func(s *memory.Sample) uint64 { return s.Allocated.Bytes }},
	{"inuse_objects", "count", func(s *memory.Sample) uint64 { return s.Unfreed().Count }},
	{"inuse_space", "bytes", func(s *memory.Sample) uint64 { return s.Unfreed().Bytes }},
	{"peak_objects", "count", func(s *memory.Sample) uint64 { return s.Peak.Count }},
	{"peak_space", "bytes", func(s *memory.Sample) uint64 { return s.Peak.Bytes }},
}

// ValueOf returns the value with that name; nil if there is none.
func ValueOf(name string) *Value {
	i := slices.IndexFunc(Values, func(v Value) bool { return v.Name == name })
	if i < 0 {
		return nil
	}
	return &Values[i]
}

// noStack replaces the frames of samples without a stack.
const noStack = "[no stack]"

// unknown is the name of an unknown function.
const unknown = "[unknown]"

// Frames returns the calls of a stack, innermost first. There is at least one.
func Frames(s *event.Stack) []event.Frame {
	if list := s.Frames(); len(list) > 0 {
		return list
	}
	return []event.Frame{{Name: noStack}}
}

// FunctionName returns the name of the frame's function, or its place if it has no name.
func FunctionName(f *event.Frame) string {
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

// FrameText returns a frame as one line. Python functions come with file and line, because
// many have the same name.
func FrameText(f *event.Frame) string {
	name := FunctionName(f)
	switch {
	case f.Kind != event.Python || f.File == "":
		return name
	case f.Line > 0:
		return fmt.Sprintf("%s (%s:%d)", name, path.Base(f.File), f.Line)
	}
	return fmt.Sprintf("%s (%s)", name, path.Base(f.File))
}

// names has the names of processes by their ids.
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

// process returns a text such as "python3 (1234)".
func (n names) process(pid int) string { return fmt.Sprintf("%s (%d)", n[pid], pid) }

// deviceName returns a text such as "device 0".
func deviceName(id int) string {
	if id == memory.NoDevice {
		return "unknown device"
	}
	return fmt.Sprintf("device %d", id)
}

// distinct counts different stacks. All samples without a stack count as one.
type distinct map[uint64]struct{}

func (d distinct) add(s *event.Stack) { d[memory.StackID(s)] = struct{}{} }
