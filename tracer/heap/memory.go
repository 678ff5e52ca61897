package heap

// This file reads memory of running processes.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
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

// maxPieces is the limit of one read call (IOV_MAX).
const maxPieces = 1024

// processMemory reads from a process. The process is neither stopped nor written to.
type processMemory struct {
	pid    int
	local  []unix.Iovec
	remote []unix.RemoteIovec
}

func (m *processMemory) read(pieces []piece) error {
	for len(pieces) > 0 {
		n := min(len(pieces), maxPieces)
		done, err := m.readSome(pieces[:n])
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

// readSome reads pieces up to the first that cannot be read completely, and returns their
// number.
func (m *processMemory) readSome(pieces []piece) (done int, err error) {
	m.local, m.remote = m.local[:0], m.remote[:0]
	for _, p := range pieces {
		local := unix.Iovec{Base: unsafe.SliceData(p.data)}
		local.SetLen(len(p.data))
		m.local = append(m.local, local)
		m.remote = append(m.remote, unix.RemoteIovec{Base: uintptr(p.address), Len: len(p.data)})
	}
	n, err := unix.ProcessVMReadv(m.pid, m.local, m.remote, 0)
	clear(m.local)
	switch {
	case err == nil, errors.Is(err, unix.EFAULT):
	case errors.Is(err, unix.ESRCH):
		return 0, errGone
	case errors.Is(err, unix.EPERM):
		return 0, fmt.Errorf("reading the memory of process %d: not permitted; CAP_SYS_PTRACE is needed: %w", m.pid, err)
	default:
		return 0, fmt.Errorf("reading the memory of process %d: %w", m.pid, err)
	}
	for i := range pieces {
		if n -= len(pieces[i].data); n < 0 {
			return i, nil
		}
		pieces[i].ok = true
	}
	return len(pieces), nil
}

// piecesOf are pieces of one size at addresses.
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

// readBytes reads one piece of memory.
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
