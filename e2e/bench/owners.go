package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/tracer/heap/owner"
	"ttmem/tracer/host"
)

// owners measures the search for who holds buffers, in heaps of several sizes, and what it costs
// the program meanwhile.
func (b *bench) owners() error {
	const tensors = 2000
	for _, objects := range []int{100_000, 1_000_000, 5_000_000} {
		p, err := b.start("heap.py", strconv.Itoa(objects), strconv.Itoa(tensors))
		if err != nil {
			return err
		}
		err = b.search(p, objects)
		p.stop()
		if err != nil {
			return err
		}
	}
	return nil
}

// search measures searches in one program.
func (b *bench) search(p *program, objects int) error {
	wanted, err := b.liveBuffers(p.pid())
	if err != nil {
		return err
	}
	b.printf("%d objects that refer to others, %d buffers\n", objects, len(wanted))
	readers := host.NewReaders()
	defer readers.Close()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // VmHWM
		return err
	}
	before, err := resident(os.Getpid(), "VmRSS")
	if err != nil {
		return err
	}
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	cpu, begun := used.Utime.Nano()+used.Stime.Nano(), time.Now()
	holders, cost, err := owner.Holders(context.Background(), readers, p.pid(), wanted)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	_ = unix.Getrusage(unix.RUSAGE_SELF, &used)
	most, err := resident(os.Getpid(), "VmHWM")
	if err != nil {
		return err
	}
	if objects == 1_000_000 {
		b.atMost("  the search takes", took.Seconds(), "s", 2)
		b.atMost("    memory", (most-before)/mb, "MB", 256)
	} else {
		b.figure("  the search takes", took.Seconds(), "s")
		b.figure("    memory", (most-before)/mb, "MB")
	}
	b.figure("    of processors", float64(used.Utime.Nano()+used.Stime.Nano()-cpu)/1e9, "s")
	b.figure("    objects reached", float64(cost.Objects), "")
	b.figure("    read", float64(cost.Bytes)/mb, "MB")
	b.atLeast("    owners found", float64(len(holders))/float64(len(wanted))*100, "%", 95)
	return b.meanwhile(p, readers, wanted)
}

// meanwhile compares rounds of the program with and without a search beside them, in turn.
func (b *bench) meanwhile(p *program, readers *host.Readers, wanted map[uint64]uint64) error {
	var alone, beside []float64
	for i := range b.rounds {
		progress("round %d of %d", i+1, b.rounds)
		took, err := p.round(b.pairs)
		if err != nil {
			return err
		}
		alone = append(alone, took.Seconds())
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			for ctx.Err() == nil {
				_, _, _ = owner.Holders(ctx, readers, p.pid(), wanted)
			}
		}()
		took, err = p.round(b.pairs)
		stop()
		<-done
		if err != nil {
			return err
		}
		beside = append(beside, took.Seconds())
	}
	progress("")
	b.atMost("  what the program loses meanwhile, best of the rounds", (slices.Min(beside)/slices.Min(alone)-1)*100, "%", 5)
	b.figure("    median", (median(beside)/median(alone)-1)*100, "%")
	return nil
}

// liveBuffers returns the addresses of the live Buffers of a process.
func (b *bench) liveBuffers(pid int) (map[uint64]uint64, error) {
	text, err := exec.Command(b.ttmem, "dump", "-p", strconv.Itoa(pid), "--json").Output()
	if err != nil {
		return nil, fmt.Errorf("ttmem dump: %w", err)
	}
	var dump struct {
		Buffers []struct {
			Object uint64
			ID     uint64 `json:"buffer_id"`
		}
	}
	if err := json.Unmarshal(text, &dump); err != nil {
		return nil, err
	}
	wanted := make(map[uint64]uint64)
	for _, one := range dump.Buffers {
		wanted[one.Object] = one.ID
	}
	return wanted, nil
}
