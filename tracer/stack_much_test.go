package tracer

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// delays returns the longest time from an event to its arrival of those after a time.
func delays(calls []stackOf, afterNs uint64) (longest time.Duration) {
	for _, c := range calls {
		if c.timeNs > afterNs {
			longest = max(longest, time.Duration(c.seenNs-c.timeNs))
		}
	}
	return longest
}

// Programs with as much code as PyTorch start and end without delaying the events of
// others, and have complete stacks themselves, the first one and the second.
func TestStacksBesideMuchCode(t *testing.T) {
	libs := tracetest.MuchCode(t, 3, "testdata/stack_native", "-pthread", `-DMODULE="much.so"`, "-DNAME=much", "-DROOM=200", "loaded.cc")
	p, exe, _ := loadProgram(t)
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{Children: true})
	var stop atomic.Bool
	var calls int
	calling := make(chan struct{})
	go func() {
		defer close(calling)
		for ; !stop.Load(); calls++ {
			p.Do(t, "call 1 steady")
			time.Sleep(time.Millisecond)
		}
	}()
	time.Sleep(2 * time.Second)
	quiet := delays(trace.seen(), 0)

	for range 2 {
		other := tracetest.Start(t, exe)
		pid, beginNs := other.Process.Pid, host.Now()
		_, err := trace.objs.AddProcess(pid, 0)
		qt.Assert(t, qt.IsNil(err))
		trace.spaces.Changed(pid)
		for _, lib := range libs {
			other.Do(t, "open 1 %s", lib)
		}
		own := func() []stackOf {
			return slices.DeleteFunc(trace.seen(), func(c stackOf) bool { return c.tid != pid })
		}
		complete := func() bool {
			other.Do(t, "call 1 settling")
			time.Sleep(2 * pollInterval)
			list := own()
			return len(list) > 0 && begins(list[len(list)-1].stack.Frames())
		}
		qt.Assert(t, qt.IsTrue(tracetest.Eventually(2*time.Minute, complete)))
		completeNs := host.Now()
		t.Logf("stacks are complete after %v", time.Duration(completeNs-beginNs))
		// the code was not read before others' events were
		meanwhile := 0
		for _, c := range trace.seen() {
			if c.tid == p.Process.Pid && c.timeNs > beginNs && c.seenNs < completeNs {
				meanwhile++
			}
		}
		qt.Check(t, qt.IsTrue(meanwhile > 0))
		before := len(own())
		other.Do(t, "call 100 known")
		other.In.Close()
		qt.Assert(t, qt.IsNil(other.Wait()))
		want := readShadow(t, other.Shadow)
		tracetest.Eventually(time.Minute, func() bool { return len(own()) >= len(want) })
		list := own()
		qt.Assert(t, qt.HasLen(list, len(want)))
		for i := before; i < len(list); i++ {
			qt.Check(t, qt.IsTrue(begins(list[i].stack.Frames())))
			qt.Check(t, qt.Equals(len(named(list[i].stack.Frames())), len(want[i].names)+1))
		}
		time.Sleep(time.Second) // its end is handled
	}
	stop.Store(true)
	<-calling
	p.In.Close()
	qt.Assert(t, qt.IsNil(p.Wait()))
	steady := slices.DeleteFunc(trace.stop(), func(c stackOf) bool { return c.tid != p.Process.Pid })
	qt.Check(t, qt.HasLen(steady, calls))
	assertShadow(t, steady, readShadow(t, p.Shadow), nil)
	longest := delays(steady, 0)
	t.Logf("%d calls beside them; they arrived after at most %v, before that after at most %v", calls, longest, quiet)
}
