package faults

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	tracing "ttmem/tracer"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A ring is a tracer of the whole host in this process. Its buffer in the kernel has room for a few
// hundred records, and its reader can be stopped: then all is lost, also that a program ends.
type ring struct {
	*scene
	reading chan struct{} // full while the reader is stopped
	mu      sync.Mutex    // of list
	list    []event.Event
	// stoppedNs is since when it reads nothing.
	stoppedNs uint64
	end       func()
}

func (s *scene) smallRing() *ring {
	r := &ring{scene: s, reading: make(chan struct{}, 1)}
	t, err := tracing.New(tracing.Options{RingBytes: 1 << 16, NoStacks: true})
	s.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- t.Run(ctx, func(e *event.Event) {
			r.mu.Lock()
			r.list = append(r.list, *e)
			r.mu.Unlock()
		}, func() {
			r.reading <- struct{}{}
			<-r.reading
		})
	}()
	r.end = func() {
		stop()
		select {
		case <-r.reading:
		default:
		}
		s.must(<-ended)
		t.Close()
	}
	return r
}

// stop stops the reader, and fills the ring with rounds of a program. The records of these are larger than
// that of an end, for which there may be room: so another program ends then, and takes it.
func (r *ring) stop(fill func()) {
	last := r.start(0)
	last.await(0)
	r.reading <- struct{}{}
	fill()
	r.must(unix.Kill(last.pid, unix.SIGKILL))
	last.wait()
	r.stoppedNs = host.Now()
}

// goOn lets the reader go on. What happened in the last moments must be lost: the ring was full.
func (r *ring) goOn(pids ...int) {
	untilNs := host.Now()
	<-r.reading
	for _, pid := range pids {
		if !tracetest.Eventually(endLimit, func() bool { return len(lost(r.of(pid))) > 0 }) {
			r.fail("process %d lost nothing", pid)
		}
		for _, e := range r.of(pid) {
			if e.TimeNs > r.stoppedNs && e.TimeNs < untilNs && !e.Reread && !e.BeforeAttach && (e.Kind == event.Alloc || e.Kind == event.Free) {
				r.fail("the ring was not full: process %d has an event %d ms after that", pid, (e.TimeNs-r.stoppedNs)/1e6)
				break
			}
		}
	}
}

// of are the events of a process so far.
func (r *ring) of(pid int) (list []event.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.list {
		if r.list[i].PID == pid {
			list = append(list, r.list[i])
		}
	}
	return list
}

// exact expects that a process has these figures.
func (r *ring) exact(pid int, wantDRAM, wantL1 uint64) {
	var dram, l1 uint64
	if !tracetest.Eventually(endLimit, func() bool {
		dram, l1 = allocated(r.of(pid), pid)
		return dram == wantDRAM && l1 == wantL1
	}) {
		r.fail("process %d has %d B of DRAM and %d B of L1 in each bank, the library counts %d and %d; lost: %q",
			pid, dram, l1, wantDRAM, wantL1, lost(r.of(pid)))
	}
}

// endsUnseen expects that a program has ended so often in a process, each time without a record.
func (r *ring) endsUnseen(pid, times int) {
	ends := 0
	for _, e := range r.of(pid) {
		if e.Kind == event.ProcessExit {
			if ends++; e.ExitStatus != event.UnknownStatus {
				r.fail("the end of process %d was not lost: status %d", pid, e.ExitStatus)
			}
		}
	}
	if ends != times {
		r.fail("%d programs have ended in process %d, not %d", ends, pid, times)
	}
}

// lostExit loses the end of a program, and all that another one does at first with its id.
func lostExit(s *scene) {
	pid := s.freeID()
	r := s.smallRing()
	defer r.end()
	spawner, first := s.startAs(pid, s.as(fmt.Sprint(pid)))
	first.play(3)
	r.exact(first.counts())
	r.stop(func() { first.play(9) })
	s.must(unix.Kill(pid, unix.SIGKILL))
	first.ended(spawner)
	_, second := s.startAs(pid, s.as(fmt.Sprint(pid)))
	second.play(1)
	r.goOn(pid)
	r.exact(second.counts())
	r.endsUnseen(pid, 1)
	second.play(2)
	r.exact(second.counts())
}

// lostExec loses that a program executes another one, and what that does at first.
func lostExec(s *scene) {
	r := s.smallRing()
	defer r.end()
	p := s.start(0)
	p.await(0)
	p.play(3)
	r.exact(p.counts())
	r.stop(func() { p.play(9) })
	p.execute()
	_, err := io.WriteString(p.in, strings.Repeat("\n", 13)) // which leaves other figures than 12 rounds
	s.must(err)
	p.await(13)
	r.goOn(p.pid)
	r.exact(p.counts())
	r.endsUnseen(p.pid, 1)
}

// lostFork loses what a program and its child allocate and free side by side.
func lostFork(s *scene) {
	r := s.smallRing()
	defer r.end()
	p := s.start(0)
	p.await(0)
	p.play(2)
	wantDRAM, wantL1 := p.figures()
	rounds := 0
	var child int
	play := func(turns int) (dram, l1 uint64) { // by the child
		rounds++
		p.write(fmt.Sprintln(turns))
		p.says(fmt.Sprintf("\nown %d ", rounds), &dram, &l1)
		return dram, l1
	}
	p.write("fork\n")
	p.says("\nchild ", &child)
	dram, l1 := play(40)
	r.exact(child, dram, l1)
	r.exact(p.pid, wantDRAM, wantL1)
	r.stop(func() { play(2500) })
	dram, l1 = play(30)
	p.write("parent\n")
	p.says("\nforked")
	p.play(1)
	r.goOn(child, p.pid)
	r.exact(child, dram, l1)
	r.exact(p.counts())
	p.play(1)
	r.exact(p.counts())
	s.must(unix.Kill(child, unix.SIGKILL))
	r.exact(child, 0, 0)
	r.exact(p.counts())
}
