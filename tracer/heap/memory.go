package heap

// This file reads memory of running processes.

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
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

const (
	// maxRuns is the limit of one read call (IOV_MAX).
	maxRuns = 1024
	// maxRunBytes is the number of bytes in one read call.
	maxRunBytes = 4 << 20
)

// processMemory reads from a process. The process is neither stopped nor written
// to.
type processMemory struct {
	pid    int
	local  []unix.Iovec
	remote []unix.RemoteIovec
	buffer []byte
}

// run is a group of close pieces: the cost of reading is by page.
type run struct {
	start, end uint64
	pieces     []*piece
}

// runs sorts pieces by address, and groups those in the same page or in adjacent ones.
func runs(pieces []piece) []run {
	page := uint64(os.Getpagesize())
	sorted := make([]*piece, len(pieces))
	for i := range pieces {
		sorted[i] = &pieces[i]
		sorted[i].ok = false
	}
	slices.SortFunc(sorted, func(a, b *piece) int { return cmp.Compare(a.address, b.address) })
	var list []run
	first := 0
	for i, p := range sorted {
		end := p.address + uint64(len(p.data))
		if end < p.address {
			first = i + 1 // past the end of the address space
			continue
		}
		if i > first {
			last := &list[len(list)-1]
			if p.address/page <= (last.end-1)/page+1 && max(end, last.end)-last.start <= maxRunBytes {
				last.end = max(end, last.end)
				last.pieces = sorted[first : i+1]
				continue
			}
		}
		first = i
		list = append(list, run{p.address, end, sorted[i : i+1]})
	}
	return list
}

func (m *processMemory) read(pieces []piece) error {
	list := runs(pieces)
	for len(list) > 0 {
		n, size := 0, uint64(0)
		for n < min(len(list), maxRuns) && (n == 0 || size+list[n].end-list[n].start <= maxRunBytes) {
			size += list[n].end - list[n].start
			n++
		}
		done, err := m.readRuns(list[:n], int(size))
		if err != nil {
			return err
		}
		if done < n { // not all of this one can be read
			if one := &list[done]; len(one.pieces) > 1 {
				for _, p := range one.pieces {
					alone := []run{{p.address, p.address + uint64(len(p.data)), []*piece{p}}}
					if _, err := m.readRuns(alone, len(p.data)); err != nil {
						return err
					}
				}
			}
			done++
		}
		list = list[done:]
	}
	return nil
}

// readRuns reads runs of some bytes in total, and returns the number of bytes read.
func (m *processMemory) readRuns(list []run, size int) (done int, err error) {
	m.buffer = slices.Grow(m.buffer[:0], size)[:size]
	m.local, m.remote = m.local[:0], m.remote[:0]
	at := uint64(0)
	for _, r := range list {
		length := r.end - r.start
		to := m.buffer[at : at+length]
		if len(r.pieces) == 1 {
			to = r.pieces[0].data
		}
		local := unix.Iovec{Base: unsafe.SliceData(to)}
		local.SetLen(int(length))
		m.local = append(m.local, local)
		m.remote = append(m.remote, unix.RemoteIovec{Base: uintptr(r.start), Len: int(length)})
		at += length
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
	at = 0
	for _, r := range list {
		if at+r.end-r.start > uint64(max(n, 0)) {
			break
		}
		for _, p := range r.pieces {
			if len(r.pieces) > 1 {
				copy(p.data, m.buffer[at+p.address-r.start:])
			}
			p.ok = true
		}
		at += r.end - r.start
		done++
	}
	return done, nil
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
