package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strconv"
	"time"

	"ttmem/tracer/host"
	"ttmem/tracer/owner"
)

// usual is the size of a heap that has goals, and oftener how often each way is measured in a round of
// other measurements: a search is short, and hosts are busy.
const (
	usual   = 1_000_000
	oftener = 10
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

var searcher owner.Searcher

// search measures searches in one program.
func (b *bench) search(p *program, objects int) error {
	wanted, err := b.liveBuffers(p.pid())
	if err != nil {
		return err
	}
	b.printf("%d objects that refer to others, %d buffers\n", objects, len(wanted))
	readers := host.NewReaders()
	defer readers.Close()
	begun := time.Now()
	holders, cost, err := searcher.Holders(context.Background(), readers, p.pid(), wanted)
	if err != nil {
		return err
	}
	took := time.Since(begun)
	if objects == usual {
		b.atMost("  the search takes", took.Seconds(), "s", 2)
		b.atMost("    memory", float64(cost.Memory)/mb, "MB", 256)
	} else {
		b.figure("  the search takes", took.Seconds(), "s")
		b.figure("    memory", float64(cost.Memory)/mb, "MB")
	}
	b.figure("    of processors", cost.CPU.Seconds(), "s")
	b.figure("    objects reached", float64(cost.Objects), "")
	b.figure("    read", float64(cost.Bytes)/mb, "MB")
	b.atLeast("    owners found", float64(len(holders))/float64(len(wanted))*100, "%", 95)
	if objects != usual {
		return nil
	}
	return b.meanwhile(p, readers, wanted)
}

// meanwhile compares rounds of the program alone, beside searches, and beside a loop of the same
// priority that reads nothing: what the processors lose by having to do.
func (b *bench) meanwhile(p *program, readers *host.Readers, wanted map[uint64]uint64) error {
	searches := func(ctx context.Context) {
		for ctx.Err() == nil {
			_, _, _ = searcher.Holders(ctx, readers, p.pid(), wanted)
		}
	}
	loop := func(ctx context.Context) {
		_ = exec.CommandContext(ctx, "nice", "-n", strconv.Itoa(owner.Niceness), "sh", "-c", "while :; do :; done").Run()
	}
	rest := func(ctx context.Context) { <-ctx.Done() }
	var lost, busier [2][]float64 // in percent, of the time and of the program's own processor time
	for i := range oftener * b.rounds {
		progress("round %d of %d", i+1, oftener*b.rounds)
		var took, busy [3]float64
		for j := range took {
			way := (i + j) % len(took)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				[]func(context.Context){rest, searches, loop}[way](ctx)
			}()
			time.Sleep(20 * time.Millisecond) // until it runs
			before := cpuTime(p.pid())
			one, err := p.round(b.pairs)
			busy[way] = (cpuTime(p.pid()) - before).Seconds()
			stop()
			<-done
			if err != nil {
				return err
			}
			took[way] = one.Seconds()
		}
		for j := range lost {
			lost[j] = append(lost[j], (took[j+1]/took[0]-1)*100)
			busier[j] = append(busier[j], (busy[j+1]/busy[0]-1)*100)
		}
	}
	progress("")
	b.atMost("  what the program loses meanwhile, median", median(lost[0]), "%", 5)
	b.spread("    half of the rounds", lost[0], "%")
	b.atMost("    more processor time of its own, median", median(busier[0]), "%", 5) // a busy host changes it little
	b.figure("    beside a loop that reads nothing, median", median(lost[1]), "%")
	b.spread("      half of the rounds", lost[1], "%")
	b.figure("      more processor time of its own, median", median(busier[1]), "%")
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
