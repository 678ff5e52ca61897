package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// The goals of a large recording.
const (
	liveBytes   = 250 // of memory for each live buffer
	applyRate   = 2e6 // events a second through the aggregate
	answerLimit = 10  // seconds to the answer of a command, or to its first line
	exitLimit   = 100 // ms for which the end of a process with a million live buffers stalls the tracer
)

// synthetic generates the events of a program, because no real one is known with a million
// live buffers. It opens a chip, allocates buffers that stay live, and then allocates others
// from 1000 lines of Python and frees one of the 1000 newest each time; every thousandth
// stays. From time to time the owners of the newest ones are found.
type synthetic struct {
	live, events int
	stacks       []*event.Stack
	random       *rand.Rand
	last         int // the number of generated events
}

const (
	syntheticPID   = 4242
	syntheticYoung = 1000
	syntheticStep  = 20_000  // ns between two events
	syntheticLook  = 100_000 // events between two searches for owners
)

func newSynthetic(live, events int) *synthetic {
	s := &synthetic{live: live, events: events, random: rand.New(rand.NewPCG(1, 2))}
	for i := range 1000 {
		s.stacks = append(s.stacks, event.StackOf([]event.Frame{
			{Kind: event.Native, Name: "tt::tt_metal::Buffer::allocate_impl", Module: "libtt_metal.so"},
			{Kind: event.Native, Name: "ttnn::add", Module: "_ttnncpp.so"},
			{Kind: event.Python, Name: fmt.Sprintf("Layer.forward_%d", i%50), File: "/models/layers.py", Line: 10 + i},
			{Kind: event.Python, Name: "Model.forward", File: "/models/model.py", Line: 7},
			{Kind: event.Python, Name: "<module>", File: "/models/run.py", Line: 3},
		}))
	}
	return s
}

// each passes all events to use.
func (s *synthetic) each(use func(*event.Event)) {
	n, now := 0, uint64(1e9)
	give := func(e event.Event) {
		now += syntheticStep
		e.TimeNs, e.PID, e.TID, e.Comm = now, syntheticPID, syntheticPID, "python"
		n++
		use(&e)
	}
	chips := []int{0}
	give(event.Event{Kind: event.ProcessStart, Start: &event.Start{Command: "python run.py", Release: "0.81.1"}})
	give(event.Event{
		Kind: event.DeviceOpen, Devices: chips, Allocator: 1, Open: &event.Open{Board: "n150", Arch: "wormhole_b0",
			Capacities: [event.BankedRegions]event.Capacity{event.DRAM: {Banks: 12, BytesPerBank: 1 << 30}, event.L1: {Banks: 64, BytesPerBank: 1 << 20}}},
	})
	buffer := func(id uint64, kind event.Kind) event.Event {
		e := event.Event{
			Kind: kind, Devices: chips, Region: event.DRAM, BufferID: id, Object: 0x7f0000000000 + id*512, Allocator: 1,
			Address: 1024 * (1 + id%(1<<20)), SizeBytes: 12 * 1024, PageSizeBytes: 1024, BytesPerBank: 1024, Banks: 12,
		}
		if kind == event.Alloc {
			e.Stack = s.stacks[id%uint64(len(s.stacks))]
		} else {
			e.Reason = event.ReasonExplicit
		}
		return e
	}
	id := uint64(0)
	for range s.live {
		give(buffer(id, event.Alloc))
		id++
	}
	for young, look := []uint64(nil), n; n < s.events; {
		if n-look >= syntheticLook {
			look = n
			for i, id := range young {
				e := buffer(id, event.Owner)
				give(event.Event{Kind: e.Kind, BufferID: id, Object: e.Object, Cause: fmt.Sprintf("model.cache[%d]", i), Message: "bf16[32,32] TILE", Count: 1e9 + syntheticStep})
			}
		}
		give(buffer(id, event.Alloc))
		if id%1000 != 0 {
			young = append(young, id)
		}
		id++
		if len(young) == syntheticYoung {
			i := s.random.IntN(len(young))
			give(buffer(young[i], event.Free))
			young[i] = young[len(young)-1]
			young = young[:len(young)-1]
		}
	}
	s.last = n
}

// scale measures the aggregate and the commands with more events than any real program has.
func (b *bench) scale() error {
	s := newSynthetic(b.scaleLive, b.scaleEvents)
	b.printf("%d generated events, with %d live buffers\n", s.events, s.live)
	if err := b.aggregateScale(); err != nil {
		return err
	}
	path := filepath.Join(b.dir, "scale.ttmem")
	begun := time.Now()
	if err := s.record(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	b.figure("  recorded at", float64(s.last)/time.Since(begun).Seconds(), "events/s")
	b.figure("  bytes of the recording, for each event", float64(info.Size())/float64(s.last), "B")
	for _, args := range [][]string{
		{"report", path}, {"dump", path, "-n", "20"}, {"dump", path, "--by", "op"}, {"dump", path, "--json"}, {"map", path}, {"map", path, "--json"}, {"oom", path},
		{"peak", path}, {"leaks", path}, {"log", path}, {"diff", path, path},
		{"dump", path, "-n", "20", "--at", time.Duration(s.last / 2 * syntheticStep).String()},
	} {
		if err := b.answer(args); err != nil {
			b.unmeasured("ttmem "+args[0], err)
		}
	}
	return nil
}

// record writes all events, as ttmem attach does.
func (s *synthetic) record(path string) error {
	state := aggregate.New()
	file, err := recording.Create(path, recording.FileOptions{
		Checkpoint: func() func() *event.Event { return state.Freeze(nil) },
	})
	if err != nil {
		return err
	}
	n := 0
	s.each(func(e *event.Event) {
		state.Apply(e)
		file.Add(e)
		if n++; file.Full() {
			progress("recording %d of %d events", n, s.events)
			if failed := file.Flush(); failed != nil && err == nil {
				err = failed
			}
		}
	})
	progress("")
	if err != nil {
		return err
	}
	return file.Close(recording.End{})
}

// aggregateScale measures package aggregate alone.
func (b *bench) aggregateScale() error {
	// the events are made beforehand, as many as fit
	var list []event.Event
	newSynthetic(b.scaleLive, b.scaleLive+2_000_000).each(func(e *event.Event) { list = append(list, *e) })
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	state := aggregate.New()
	for i := range list[:b.scaleLive] {
		state.Apply(&list[i])
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	held := float64(after.HeapAlloc-before.HeapAlloc) / float64(b.scaleLive)
	begun := time.Now()
	for i := range list[b.scaleLive:] {
		state.Apply(&list[b.scaleLive+i])
	}
	rate := float64(len(list)-b.scaleLive) / time.Since(begun).Seconds()
	begun = time.Now()
	state.Snapshot()
	b.figure("  a snapshot takes", time.Since(begun).Seconds()*1e3, "ms")
	exit := event.Event{TimeNs: list[len(list)-1].TimeNs + syntheticStep, Kind: event.ProcessExit, PID: syntheticPID}
	begun = time.Now()
	state.Apply(&exit)
	stall := time.Since(begun)
	runtime.KeepAlive(list)
	b.atMost("  the end of the process stalls the tracer for", stall.Seconds()*1e3, "ms", exitLimit)
	b.atMost("  memory for each live buffer", held, "B", liveBytes)
	b.atLeast("  through the aggregate", rate, "events/s", applyRate)
	return nil
}

// answer runs a command and measures the time to its first line and to its end. A command that
// writes a line for every event is stopped after the first.
func (b *bench) answer(args []string) error {
	progress("ttmem %v", args)
	defer progress("")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.ttmem, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	most, stopWatching := watchResident(cmd.Process.Pid)
	one := make([]byte, 1)
	_, err = io.ReadFull(out, one)
	first := time.Since(begun)
	streams := args[0] == "log"
	if streams {
		cancel()
	}
	_, _ = io.Copy(io.Discard, out)
	stopWatching()
	if failed := cmd.Wait(); failed != nil && !streams || err != nil {
		return fmt.Errorf("%w: %s", errors.Join(failed, err), bytes.TrimSpace(errs.Bytes()))
	}
	name := "ttmem " + args[0]
	if len(args) > 2 && args[0] != "diff" {
		name += " " + strings.Join(args[2:], " ")
	}
	b.atMost("  "+name+": to its first line", first.Seconds(), "s", answerLimit)
	b.figure("    resident at most", *most/mb, "MB")
	if !streams {
		b.figure("    to its end", time.Since(begun).Seconds(), "s")
		b.figure("    of processors", (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds(), "s")
	}
	return nil
}

// watchResident watches the memory of a process until stop is called; most is its maximum.
// getrusage would include this process's own memory at the time of the fork.
func watchResident(pid int) (most *float64, stop func()) {
	most = new(float64)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if bytes, err := resident(pid, "VmHWM"); err == nil {
				*most = max(*most, bytes)
			}
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	}()
	return most, func() {
		close(end)
		<-ended
	}
}
