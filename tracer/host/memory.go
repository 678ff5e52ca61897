package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// A Memory is the memory of a process.
type Memory interface {
	// Read fills pieces, and marks those that could be read completely. An error means that
	// nothing more can be read.
	Read(pieces []Piece) error
}

// A Piece is a part of a process's memory, and where it is copied to.
type Piece struct {
	Address uint64
	Data    []byte
	OK      bool
}

// ErrGone means that a process has ended.
var ErrGone = errors.New("the process has ended")

// A Bounded memory is one of which so many bytes may be read.
type Bounded struct {
	Memory
	Left int64
	// Over is the error when there are none left.
	Over error
}

// readCost is added for each read, because a call takes as long as reading these bytes.
const readCost = 256

// Cost is how many bytes a read of n bytes takes of a Bounded memory.
func Cost(n int) int64 { return int64(max(n, readCost)) }

// Read implements Memory.
func (b *Bounded) Read(pieces []Piece) error {
	for i := range pieces {
		b.Left -= Cost(len(pieces[i].Data))
	}
	if b.Left < 0 {
		return b.Over
	}
	return b.Memory.Read(pieces)
}

// The limits of one read: IOV_MAX ranges, and bytes.
const (
	maxRanges    = 1024
	maxReadBytes = 1 << 20
)

// readAll reads pieces by calls that read some up to the first one that cannot be read completely, and
// return the number of those before. It reads no piece of more than maxReadBytes.
func readAll(pieces []Piece, some func([]Piece) (done int, err error)) error {
	for len(pieces) > 0 {
		n, bytes := 0, 0
		for n < min(len(pieces), maxRanges) && bytes+len(pieces[n].Data) <= maxReadBytes {
			bytes += len(pieces[n].Data)
			n++
		}
		if n == 0 { // larger than any read
			pieces[0].OK, pieces = false, pieces[1:]
			continue
		}
		done, err := some(pieces[:n])
		if err != nil {
			return err
		}
		for i := range pieces[:n] {
			pieces[i].OK = i < done
		}
		pieces = pieces[min(done+1, n):] // the next one cannot be read
	}
	return nil
}

// A childMemory is read by the children of Readers, which are left behind if it does not answer.
type childMemory struct {
	ReadableProcess
	ctx context.Context
}

// Memory returns the memory of the process, which can be read until the context is done.
func (p ReadableProcess) Memory(ctx context.Context) Memory { return childMemory{p, ctx} }

// Read implements Memory.
func (m childMemory) Read(pieces []Piece) error {
	err := readAll(pieces, m.some)
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("reading the memory of process %d: not permitted; CAP_SYS_PTRACE is needed: %w", m.PID, err)
	case err != nil:
		return fmt.Errorf("reading the memory of process %d: %w", m.PID, err)
	}
	return nil
}

func (m childMemory) some(pieces []Piece) (done int, err error) {
	thread, err := m.Thread()
	if err != nil {
		return 0, err
	}
	request := func(r *sharedRead) {
		r.Thread, r.Ranges = int64(thread), int64(len(pieces))
		for i, p := range pieces {
			r.Remote[i] = unix.RemoteIovec{Base: uintptr(p.Address), Len: len(p.Data)}
		}
	}
	err = m.read(m.ctx, request, func(data []byte) {
		for ; done < len(pieces) && len(pieces[done].Data) <= len(data); done++ {
			data = data[copy(pieces[done].Data, data):]
		}
	})
	return done, err
}

// A ThreadMemory is the memory of the process of a thread, read by the caller. It waits where a page of
// the process does not answer.
type ThreadMemory struct {
	Thread int
	// Paced reads rest for half the time of work: a process that shares the caches and the memory's
	// bandwidth with the reader loses less.
	Paced  bool
	rested time.Duration // processor time at the last rest
}

// workTime is the processor time between two rests.
const workTime = 2 * time.Millisecond

// Read implements Memory.
func (t *ThreadMemory) Read(pieces []Piece) error {
	if worked := ProcessorTime() - t.rested; t.Paced && worked > workTime {
		time.Sleep(worked / 2)
		t.rested += worked
	}
	return readAll(pieces, func(some []Piece) (done int, err error) {
		local, remote := make([]unix.Iovec, len(some)), make([]unix.RemoteIovec, len(some))
		for i, p := range some {
			local[i].Base = &p.Data[0]
			local[i].SetLen(len(p.Data))
			remote[i] = unix.RemoteIovec{Base: uintptr(p.Address), Len: len(p.Data)}
		}
		n, err := readThread(t.Thread, local, remote)
		for ; done < len(some) && len(some[done].Data) <= n; done++ {
			n -= len(some[done].Data)
		}
		return done, err
	})
}

// ProcessorTime returns the processor time of this process.
func ProcessorTime() time.Duration { return time.Duration(clock(unix.CLOCK_PROCESS_CPUTIME_ID)) }

// readThread reads up to the first byte that cannot be read.
func readThread(thread int, local []unix.Iovec, remote []unix.RemoteIovec) (n int, err error) {
	if n, err = unix.ProcessVMReadv(thread, local, remote, 0); errors.Is(err, unix.EFAULT) {
		return 0, nil
	}
	return n, err
}
