package export

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/google/pprof/profile"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// Pprof writes the profile as a gzipped profile.proto, for `go tool pprof` and other readers.
// Sample types are alloc_objects, alloc_space, inuse_objects, inuse_space (not freed explicitly),
// peak_objects and peak_space; and, if all values are written, one for each region of the value that Options names, such as
// dram_peak_space. Unless Options.Named is set, the first of these is shown first: only the bytes of
// one region add up. Samples have the labels process, pid, device, region and, where
// it is known, class.
//
// The innermost location is the call site, as in all other views: the user's line and the operation.
// Without it, that would be the same function of the library for nearly all stacks. The location of a native frame has the address in its module's file, and a line for each
// inlined function. Python frames have no address; their mapping is named "python".
//
// It returns the number of different stacks.
func Pprof(w io.Writer, p *memory.Profile, o Options) (stacks int, err error) {
	b := newPprofBuilder()
	shown := cmp.Or(o.Value, "peak_space")
	of, regions := o.Values, []Value(nil)
	if of == nil {
		regions = regionValues(ValueOf(shown), p)
		of = slices.Concat(Values, regions)
	}
	b.profile.DefaultSampleType = shown
	if len(regions) > 0 && !o.Named {
		b.profile.DefaultSampleType = regions[0].Name
	}
	for _, v := range of {
		b.profile.SampleType = append(b.profile.SampleType, &profile.ValueType{Type: v.Name, Unit: v.Unit})
	}
	if o.Values == nil {
		b.profile.Comments = append(b.profile.Comments,
			"inuse is what was not given back explicitly, peak what was allocated when a region of a device was fullest.")
	}
	if o.Of != "" {
		b.profile.Comments = append(b.profile.Comments, "Memory "+event.Printable(o.Of)+".")
	}
	first, last := p.FirstNs, p.LastNs
	b.profile.DurationNanos = clamp(last - first)
	if !o.Begun.IsZero() {
		b.profile.TimeNanos = o.Begun.UnixNano()
	}
	processes := processNames(p)
	seen := make(distinct)
	samples := p.Samples
	if len(samples) > 0 {
		// pprof takes the first mapping for the program.
		b.mapping(mappingKey{file: processes[samples[0].PID]})
	}
	for i := range samples {
		s := &samples[i]
		values := make([]int64, len(of))
		for i := range of {
			values[i] = clamp(of[i].Of(s))
		}
		if o.Values != nil && slices.Max(values) == 0 {
			continue
		}
		seen.add(s.Stack)
		// pprof drops numeric labels that are 0, such as the id of the first device.
		label := map[string][]string{
			"process": {event.Printable(processes[s.PID])}, "pid": {strconv.Itoa(s.PID)},
			"device": {deviceLabel(s.Device)}, "region": {s.Region.String()},
		}
		if class := b.class(s); class != nil {
			label["class"] = []string{class.String()}
		}
		b.profile.Sample = append(b.profile.Sample, &profile.Sample{Location: b.stack(s), Value: values, Label: label})
	}
	b.finishMappings()
	if err := b.profile.CheckValid(); err != nil {
		return 0, fmt.Errorf("making a pprof profile: %w", err)
	}
	return len(seen), b.profile.Write(w)
}

func deviceLabel(id int) string {
	if id == memory.NoDevice {
		return "unknown"
	}
	return strconv.Itoa(id)
}

// clamp fits a sum into the format's signed numbers.
func clamp(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// A pprofBuilder makes each mapping, function and location once.
type pprofBuilder struct {
	profile   *profile.Profile
	mappings  map[mappingKey]*profile.Mapping
	functions map[functionKey]*profile.Function
	locations map[string]*profile.Location
	stacks    map[*event.Stack][]*profile.Location
	classes   name.Classes
	key       []byte
}

type mappingKey struct{ file, buildID string }

type functionKey struct {
	name, symbol, file string
}

func newPprofBuilder() *pprofBuilder {
	return &pprofBuilder{
		profile: &profile.Profile{
			// every allocation is seen
			PeriodType: &profile.ValueType{Type: "space", Unit: "bytes"}, Period: 1,
			Comments: []string{"Memory of Tenstorrent devices, by ttmem."},
		},
		mappings:  make(map[mappingKey]*profile.Mapping),
		functions: make(map[functionKey]*profile.Function),
		locations: make(map[string]*profile.Location),
		stacks:    make(map[*event.Stack][]*profile.Location),
	}
}

// regionValues returns the parts of a value in each region, of those in which any memory is.
func regionValues(v *Value, p *memory.Profile) (list []Value) {
	if v == nil {
		return nil
	}
	for _, region := range []event.Region{event.DRAM, event.L1, event.L1Small, event.Trace, event.CB} {
		in := func(s *memory.Sample) uint64 {
			if s.Region != region {
				return 0
			}
			return v.Of(s)
		}
		if slices.ContainsFunc(p.Samples, func(s memory.Sample) bool { return in(&s) > 0 }) {
			list = append(list, Value{Name: strings.ToLower(region.String()) + "_" + v.Name, Unit: v.Unit, Of: in})
		}
	}
	return list
}

// class returns what the buffers of a sample are for; nil if that is not known, and for other memory.
func (b *pprofBuilder) class(s *memory.Sample) *name.Class {
	if int(s.Region) >= event.BankedRegions {
		return nil
	}
	return b.classes.Of(s.Stack, s.Region, "", "")
}

// stack returns the locations of the sample's stack, innermost first.
func (b *pprofBuilder) stack(s *memory.Sample) []*profile.Location {
	if list, ok := b.stacks[s.Stack]; ok {
		return list
	}
	var list []*profile.Location
	calls := Frames(s.Stack)
	if site := name.Of(calls); site.Op != "" && site.Call.Function != "" {
		site.Op = b.class(s).Before(site.Op, " · ")
		call := event.Frame{Kind: event.Python, Name: site.String(), File: site.Call.File, Line: site.Call.Line}
		list = append(list, b.location([]event.Frame{call}))
	}
	for len(calls) > 0 {
		n := oneCall(calls)
		list = append(list, b.location(calls[:n]))
		calls = calls[n:]
	}
	b.stacks[s.Stack] = list
	return list
}

// oneCall returns how many of the frames belong to the first real call: inlined functions precede
// the function that contains them.
func oneCall(calls []event.Frame) int {
	n := 1
	for n < len(calls) && calls[n-1].Inlined && calls[n].Kind == event.Native &&
		calls[n].Address == calls[0].Address && calls[n].Module == calls[0].Module {
		n++
	}
	return n
}

func (b *pprofBuilder) location(calls []event.Frame) *profile.Location {
	outer := &calls[len(calls)-1]
	b.key = b.key[:0]
	if outer.Kind == event.Native {
		b.key = strconv.AppendUint(b.key, outer.Address, 16)
	}
	for i := range calls {
		f := &calls[i]
		for _, part := range [...]string{f.Kind, f.Module, f.BuildID, f.Name, f.Symbol, f.File} {
			b.key = strconv.AppendInt(b.key, int64(len(part)), 10)
			b.key = append(append(b.key, ':'), part...)
		}
		b.key = append(strconv.AppendInt(b.key, int64(f.Line), 10), '\n')
	}
	if l := b.locations[string(b.key)]; l != nil {
		return l
	}
	l := &profile.Location{ID: uint64(len(b.profile.Location) + 1)}
	switch outer.Kind {
	case event.Native:
		l.Address = outer.Address
		l.Mapping = b.mapping(mappingKey{outer.Module, outer.BuildID})
	case event.Python:
		l.Mapping = b.mapping(mappingKey{file: event.Python})
	}
	for i := range calls {
		f := &calls[i]
		if f.Name == "" && l.Address != 0 && l.Mapping != nil {
			// pprof shows the address
			continue
		}
		l.Line = append(l.Line, profile.Line{Function: b.function(f), Line: int64(f.Line)})
	}
	b.locations[string(b.key)] = l
	b.profile.Location = append(b.profile.Location, l)
	return l
}

func (b *pprofBuilder) function(f *event.Frame) *profile.Function {
	function := event.Printable(FunctionName(f))
	key := functionKey{function, f.Symbol, f.File}
	if fn := b.functions[key]; fn != nil {
		return fn
	}
	system := f.Symbol
	if f.Kind == event.Python {
		// If both names are the same, pprof removes angle brackets with their content as
		// C++ template arguments: all of "<module>".
		system = f.File + ":" + function
	}
	fn := &profile.Function{
		ID: uint64(len(b.profile.Function) + 1), Name: function, SystemName: event.Printable(cmp.Or(system, function)), Filename: event.Printable(f.File),
	}
	b.functions[key] = fn
	b.profile.Function = append(b.profile.Function, fn)
	return fn
}

// mapping returns the mapping of a module; nil if it has no name.
func (b *pprofBuilder) mapping(key mappingKey) *profile.Mapping {
	if key.file == "" {
		return nil
	}
	if m := b.mappings[key]; m != nil {
		return m
	}
	m := &profile.Mapping{
		ID: uint64(len(b.profile.Mapping) + 1),
		// With a mapping of the whole address space, pprof takes addresses for those of the file.
		Start: 0, Limit: math.MaxUint64,
		File: event.Printable(key.file), BuildID: event.Printable(key.buildID),
	}
	b.mappings[key] = m
	b.profile.Mapping = append(b.profile.Mapping, m)
	return m
}

// finishMappings sets which details each mapping has. All lookups are done: if a mapping has one
// named function, pprof need not search its file.
func (b *pprofBuilder) finishMappings() {
	for _, l := range b.profile.Location {
		m := l.Mapping
		if m == nil {
			continue
		}
		for _, line := range l.Line {
			m.HasFunctions, m.HasInlineFrames = true, true
			m.HasFilenames = m.HasFilenames || line.Function.Filename != ""
			m.HasLineNumbers = m.HasLineNumbers || line.Line > 0
		}
	}
}
