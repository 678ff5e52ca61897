package layout

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
)

// programFields are the fields of programs, and the minimum number of functions that show
// each, up to 0.65 and from then on. Those of libraries with dataflow buffers only are
// marked.
var programFields = map[string]struct {
	before, since int
	dataflow      bool
}{
	"ProgramImpl.circular_buffers_":                        {1, 1, false},
	"ProgramImpl.local_circular_buffer_allocation_needed_": {1, 1, false},
	"CircularBuffer.core_ranges":                           {2, 3, false},
	"CircularBuffer.size":                                  {1, 1, false},
	"CircularBuffer.is_global":                             {1, 1, false},
	"CircularBuffer.has_local_address":                     {1, 1, false},
	"CircularBuffer.local_address":                         {1, 1, false},
	"CircularBuffer.global_address":                        {1, 1, false},
	"ProgramImpl.kernel_text_size":                         {1, 1, false},
	"Device.command_queue_programs_":                       {2, 2, false},
	"Device.fabric_program_":                               {2, 2, false},
	"ProgramImpl.dfb_allocators_":                          {0, 2, true},
	"ProgramImpl.local_dataflow_buffer_allocation_needed_": {0, 2, true},
	"CircularBufferAllocator.l1_regions":                   {0, 2, true},
	"CircularBufferAllocator.next":                         {0, 2, true},
}

// All fields of programs are found in all releases, without contradictions.
// TestReadPrograms in tracer checks them on running programs.
func TestLivePrograms(t *testing.T) {
	for release := range truths(t) {
		if !*tracetest.Long && !slices.Contains(few, release) {
			continue
		}
		t.Run(release, func(t *testing.T) {
			e, err := symbolize.Open(library(t, release))
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			d, err := derive(e)
			qt.Assert(t, qt.IsNil(err))
			fields := d.layout.Fields
			for name, want := range programFields {
				qt.Check(t, qt.Not(qt.Equals(costs[name], "")), qt.Commentf("%s", name))
				least := want.since
				switch {
				case want.dataflow && before(release, 0, 67):
					qt.Check(t, qt.IsNil(fields[name]))
					continue
				case before(release, 0, 66):
					least = want.before
				}
				qt.Check(t, qt.IsTrue(d.agreed[name] >= least), qt.Commentf("%s: %d sources, %s", name, d.agreed[name], missing(d.layout, name)))
			}
			last := func(name string) int32 { c := fields[name]; return c[len(c)-1] }
			// a CoreRangeSet is a vector; the configuration follows it
			qt.Check(t, qt.IsTrue(last("CircularBuffer.size") >= last("CircularBuffer.core_ranges")+24))
			qt.Check(t, qt.Equals(last("CircularBuffer.has_local_address"), last("CircularBuffer.local_address")+4))
			qt.Check(t, qt.Equals(last("CircularBuffer.global_address"), last("CircularBuffer.has_local_address")+4))
			if before(release, 0, 67) {
				return
			}
			qt.Check(t, qt.Equals(last("ProgramImpl.local_dataflow_buffer_allocation_needed_"),
				last("ProgramImpl.local_circular_buffer_allocation_needed_")+1))
			// an allocator is a CoreRange and a vector
			qt.Check(t, qt.Equals(fields["CircularBufferAllocator.l1_regions"].String(), "0x20"))
			qt.Check(t, qt.Equals(fields["CircularBufferAllocator.next"].String(), "0x38"))
		})
	}
}

// Whatever replaces the functions, what is found is right or missing.
func TestLiveProgramsDamaged(t *testing.T) {
	whole := image(t, "0.81.1")
	want, err := Derive(open(t, whole))
	qt.Assert(t, qt.IsNil(err))
	e := open(t, whole)
	functions := []string{
		"detail::ProgramImpl::circular_buffers const",
		"detail::ProgramImpl::get_program_config const", invalidateCBs, invalidateDFBs, allocateCBs,
		"detail::ProgramImpl::finalize_program_offsets", allocatorMark, cbImplAddress,
		"CircularBufferImpl::is_on_logical_core const", "CircularBufferImpl::is_on_logical_corerange const",
		"CircularBuffer::core_ranges const", "CircularBuffer::size const", "CircularBuffer::globally_allocated const",
		"CircularBufferConfig::total_size const", "CircularBufferConfig::globally_allocated_address const", dataflowBuffers, validateDFBs,
		"Device::configure_fabric", "Device::configure_command_queue_programs",
	}
	for fill, at := range map[string]func(i int) byte{
		"int3": func(int) byte { return 0xcc }, "zero": func(int) byte { return 0 },
		"ret": func(int) byte { return 0xc3 },
		"any": func(i int) byte { return byte(i*167 + 13 + i>>3*89) },
	} {
		t.Run(fill, func(t *testing.T) {
			b := bytes.Clone(whole)
			for _, name := range functions {
				overwrite(t, b, e, name, func(code []byte) {
					for i := range code {
						code[i] = at(i)
					}
				})
			}
			l, err := Derive(open(t, b))
			qt.Assert(t, qt.IsNil(err))
			for name := range programFields {
				qt.Check(t, qt.IsNil(l.Fields[name]), qt.Commentf("%s", name))
				qt.Check(t, qt.Not(qt.Equals(missing(l, name), "")), qt.Commentf("%s", name))
			}
		})
	}
	// each alone, moved by a few bytes: its second half still works
	for _, function := range functions {
		b := bytes.Clone(whole)
		overwrite(t, b, e, function, func(code []byte) { copy(code, code[min(len(code)/2, 16):]) })
		l, err := Derive(open(t, b))
		qt.Assert(t, qt.IsNil(err))
		for name, c := range l.Fields {
			if _, ok := programFields[name]; ok {
				qt.Check(t, qt.DeepEquals(c, want.Fields[name]), qt.Commentf("%s: %s", readable(function), name))
			}
		}
	}
}

// A library that lacks a function's name reports the cost.
func TestLiveProgramsHidden(t *testing.T) {
	b := image(t, "0.81.1")
	for _, name := range []string{mangle(cbImplAddress), mangle("detail::ProgramImpl::get_program_config const")} {
		b = bytes.ReplaceAll(b, []byte(name), []byte(strings.Replace(name, "tt_metal", "tt_petal", 1)))
	}
	l, err := Derive(open(t, b))
	qt.Assert(t, qt.IsNil(err))
	costly := map[string]string{}
	for _, m := range l.Missing {
		costly[m.Name] = m.Costs
	}
	qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(costly)), []string{
		"CircularBuffer.global_address", "CircularBuffer.has_local_address", "CircularBuffer.local_address",
	}))
	qt.Check(t, qt.Equals(costly["CircularBuffer.local_address"], "circular buffers allocated before the attach are not seen"))
}
