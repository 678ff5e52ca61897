package heap

// This file reads memory of running processes.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
)

// memory is the memory of a process.
type memory interface {
	// read fills pieces, and marks those that could be read completely. An error means that
	// nothing more can be read.
	read(pieces []piece) error
}

// piece is a part of a process's memory.
type piece struct {
	address uint64
	data    []byte
	ok      bool
}

// errGone means that a process has ended.
var errGone = errors.New("the process has ended")

// processMemory reads from a process until its context is done.
type processMemory struct {
	ctx     context.Context
	process host.ReadableProcess
}

func (m processMemory) read(pieces []piece) error {
	for len(pieces) > 0 {
		n, bytes := 0, 0
		for n < min(len(pieces), host.MaxRanges) && bytes+len(pieces[n].data) <= host.MaxReadBytes {
			bytes += len(pieces[n].data)
			n++
		}
		done, err := 0, error(nil)
		if n == 0 {
			n = 1
			done, err = m.readLarge(&pieces[0])
		} else {
			done, err = m.readSome(pieces[:n])
		}
		if err != nil {
			return err
		}
		if done < n {
			pieces[done].ok = false
			done++
		}
		pieces = pieces[done:]
	}
	return nil
}

// readLarge reads a piece that is too large for one read; done is 0 if it cannot be read
// completely.
func (m processMemory) readLarge(p *piece) (done int, err error) {
	at := p.address
	for part := range slices.Chunk(p.data, host.MaxReadBytes) {
		if done, err = m.readSome([]piece{{address: at, data: part}}); done == 0 {
			return 0, err
		}
		at += uint64(len(part))
	}
	p.ok = true
	return 1, nil
}

// readSome reads pieces up to the first that cannot be read completely, and returns their
// number.
func (m processMemory) readSome(pieces []piece) (done int, err error) {
	ranges := make([]host.Range, len(pieces))
	for i, p := range pieces {
		ranges[i] = host.Range{Address: p.address, Data: p.data}
	}
	done, err = m.process.Memory(m.ctx, ranges)
	switch {
	case err == nil:
	case errors.Is(err, unix.ESRCH):
		return 0, errGone
	case errors.Is(err, unix.EPERM):
		return 0, fmt.Errorf("reading the memory of process %d: not permitted; CAP_SYS_PTRACE is needed: %w", m.process.PID, err)
	default:
		return 0, fmt.Errorf("reading the memory of process %d: %w", m.process.PID, err)
	}
	for i := range pieces[:done] {
		pieces[i].ok = true
	}
	return done, nil
}

func piecesOf(addresses []uint64, size int) []piece {
	pieces := make([]piece, len(addresses))
	data := make([]byte, len(addresses)*size)
	for i, at := range addresses {
		pieces[i] = piece{address: at, data: data[i*size : (i+1)*size : (i+1)*size]}
	}
	return pieces
}

// errUnreadable means that there is no memory at an address.
var errUnreadable = errors.New("not readable")

func readBytes(m memory, address uint64, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil // an empty vector, whose address is meaningless
	}
	p := piecesOf([]uint64{address}, size)
	if err := m.read(p); err != nil {
		return nil, err
	}
	if !p[0].ok {
		return nil, fmt.Errorf("%#x: %w", address, errUnreadable)
	}
	return p[0].data, nil
}

// word is the 8 bytes at an offset.
func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// elements is the number of elements between two pointers, as in a std::vector; false if it
// exceeds a bound or is not a whole number.
func elements(begin, end, size, bound uint64) (int, bool) {
	if end < begin || (end-begin)%size != 0 || (end-begin)/size > bound {
		return 0, false
	}
	return int((end - begin) / size), true
}
