package tracer

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/kernel"
	"ttmem/tracer/libraries"
)

// withLibrary is a host whose records are all of one library.
type withLibrary struct {
	hostView
	only *libraries.Library
}

func (h withLibrary) library(uint8) *libraries.Library { return h.only }

// A return address of the allocating function that lies on the stack makes no failure of another
// exception if the stack can be unwound. Without call stacks it is taken for a call.
func TestStaleReturnAddress(t *testing.T) {
	for _, stacks := range []bool{true, false} {
		t.Run(fmt.Sprint("stacks ", stacks), func(t *testing.T) {
			const times = 20
			programs, exe := repeatProgram(t, 1)
			p := programs[0]
			tr, err := New(Options{Processes: []int{p.Process.Pid}, NoStacks: !stacks, Warn: func(text string) { t.Log(text) }})
			qt.Assert(t, qt.IsNil(err))
			defer tr.Close()
			if stacks {
				tell(tr, p.Process.Pid)
			}
			lib := newTestDecoder().host.library(0)
			tr.decoder.host = withLibrary{tr.decoder.host, lib}

			elf, err := symbolize.Open(exe)
			qt.Assert(t, qt.IsNil(err))
			defer elf.Close()
			allocate, ok := elf.Lookup("allocate")
			qt.Assert(t, qt.IsTrue(ok))
			thrown, ok := elf.Lookup("thrown")
			qt.Assert(t, qt.IsTrue(ok))
			var l bpf.KernelLayout
			l.Allocate = bpf.KernelCode{Start: allocate.Addr, End: allocate.Addr + allocate.Size}
			l.ProbeAddress[bpf.KernelProbePROBE_THROW] = thrown.Addr
			qt.Assert(t, qt.IsNil(tr.objs.Layouts.Put(uint32(0), &l)))
			k, err := kernel.Detect()
			qt.Assert(t, qt.IsNil(err))
			probe, err := k.Uprobes.Place(exe, tr.objs.OnProbe, []uint64{tracetest.MustOffset(t, exe, "thrown")},
				[]uint64{uint64(bpf.KernelProbePROBE_THROW)}, p.Process.Pid)
			qt.Assert(t, qt.IsNil(err))
			defer probe.Close()

			var running sync.WaitGroup
			ctx, cancel := context.WithCancel(context.Background())
			failures := 0
			running.Go(func() {
				err := tr.Run(ctx, func(e *event.Event) {
					if e.Kind == event.AllocFailed {
						failures++
					}
				}, func() {})
				qt.Check(t, qt.IsNil(err))
			})
			p.Do(t, "stale %d", times)
			p.Do(t, "throw %d", times)
			cancel()
			running.Wait()
			want := times
			if !stacks {
				want = 2 * times
			}
			qt.Check(t, qt.Equals(failures, want))
		})
	}
}
