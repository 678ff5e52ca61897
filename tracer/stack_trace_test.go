package tracer

// Shared by the tests of stacks: stacks of all calls of one function in a running process,
// without a tt-metal library.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// stackOf is one call of the traced function.
type stackOf struct {
	tid    int
	timeNs uint64
	seenNs uint64 // when it arrived
	ids    bpf.KernelStackIds
	stack  *event.Stack
}

// stackTrace traces the calls of a function in a process.
type stackTrace struct {
	*Tracer
	pid    int
	cancel context.CancelFunc
	ended  sync.WaitGroup
	close  func()

	mu    sync.Mutex
	calls []stackOf
}

// traceStacks traces the calls of a function at its first instruction. When it returns, the
// probe is in place and the process's code is known.
func traceStacks(t *testing.T, pid int, file, symbol string, o Options) *stackTrace {
	t.Helper()
	tracetest.NeedsRoot(t)
	elf, err := symbolize.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer elf.Close()
	s, ok := elf.Lookup(symbol)
	qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%s has no %s", file, symbol))
	offset, ok := elf.FileOffset(s.Addr)
	qt.Assert(t, qt.IsTrue(ok))

	o.Processes = []int{pid}
	if o.Warn == nil {
		o.Warn = func(_ int, text string) { t.Log("warning: " + text) }
	}
	tr, err := New(o)
	qt.Assert(t, qt.IsNil(err))
	st := &stackTrace{Tracer: tr, pid: pid}
	// no tt-metal library is mapped: read the process's code all the same
	if !o.NoStacks {
		tr.spaces.Changed(pid)
		tr.spaces.Settle()
	}
	k, err := kernel.Detect()
	qt.Assert(t, qt.IsNil(err))
	spec := k.Spec
	limit := pid // restricts the probe to the process
	if o.Children {
		limit = 0
	}
	spec.Programs["on_stack"].AttachType = k.Uprobes.AttachType(limit != 0)
	qt.Assert(t, qt.IsNil(k.SetVariables(kernel.LoadOptions{Stacks: !o.NoStacks})))
	for name := range spec.Programs {
		if name != "on_stack" {
			delete(spec.Programs, name)
		}
	}
	maps := tr.maps()
	maps[".bss"], err = tr.globals()
	qt.Assert(t, qt.IsNil(err))
	defer maps[".bss"].Close()
	probe, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: maps})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(probe.Close)
	probes, err := k.Uprobes.Place(file, probe.Programs["on_stack"], []uint64{offset}, []uint64{0}, limit)
	qt.Assert(t, qt.IsNil(err))
	tr.decoder.stackSeen = func(h *bpf.KernelHeader, stack *event.Stack) {
		st.mu.Lock()
		defer st.mu.Unlock()
		st.calls = append(st.calls, stackOf{int(h.Tid), h.TimeNs, host.Now(), h.Stack, stack})
	}
	ctx, cancel := context.WithCancel(context.Background())
	st.cancel = cancel
	st.ended.Go(func() {
		if err := tr.Run(ctx, func(*event.Event) {}, func() {}); err != nil {
			t.Errorf("tracing: %v", err)
		}
	})
	st.close = sync.OnceFunc(func() { st.stop(); probes.Close(); tr.Close() })
	t.Cleanup(st.close)
	return st
}

// maps returns the kernel side's maps by name.
func (t *Tracer) maps() map[string]*ebpf.Map {
	maps := make(map[string]*ebpf.Map)
	v := reflect.ValueOf(t.objs.KernelMaps)
	for i := range v.NumField() {
		maps[v.Type().Field(i).Tag.Get("ebpf")] = v.Field(i).Interface().(*ebpf.Map)
	}
	return maps
}

// globals returns the map of the tracer's global variables: a probe with its own map would
// not learn of code objects that die.
func (t *Tracer) globals() (*ebpf.Map, error) {
	info, err := t.objs.OnCodeDealloc.Info()
	if err != nil {
		return nil, err
	}
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			return nil, err
		}
		if info, err := m.Info(); err == nil && strings.HasSuffix(info.Name, ".bss") {
			return m, nil
		}
		m.Close()
	}
	return nil, errors.New("the BPF program has no .bss")
}

// stop ends the trace and returns all calls in order of time.
func (s *stackTrace) stop() []stackOf {
	if s.cancel != nil {
		time.Sleep(2 * pollInterval)
		s.cancel()
		s.ended.Wait()
		s.cancel = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// text formats a frame for failure messages.
func text(f *event.Frame) string {
	if f.Kind == event.Python {
		return fmt.Sprintf("%s (%s:%d)", f.Name, filepath.Base(f.File), f.Line)
	}
	name := f.Name
	if name == "" {
		name = fmt.Sprintf("%#x", f.Address)
	}
	return name + " in " + f.Module
}
