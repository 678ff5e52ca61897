package heap

// This file searches the memory of a process for devices, and reads their buffers, after a
// late attach.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

const (
	// smallMapping is the largest mapping that malloc makes for many objects, in bytes.
	smallMapping = 64 << 20
	// scanBytes is the number of bytes in one read.
	scanBytes = 1 << 20
	// scanRest is the ratio of rest to work in the scan of large mappings.
	scanRest = 3
)

// Bits of /proc/PID/pagemap.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
)

// Read searches a process's memory for devices. It calls report for each device with its live
// buffers, several times if there are many. The process keeps running, so that buffers that it
// allocates or frees meanwhile may be included or not. The error names objects that could not be
// read; the results passed to report are right.
func (l *Library) Read(ctx context.Context, process host.ReadableProcess, bias uint64, report func(Device, []Buffer)) error {
	if err := l.checkReadable(); err != nil {
		return err
	}
	s := &scanner{
		reader: &reader{Library: l, memory: budgetOf(process.Memory(ctx)), bias: bias},
		report: report, buffer: make([]byte, scanBytes),
		devices: make(map[uint64]bool), allocators: make(map[uint64]bool),
	}
	return s.run(ctx, process)
}

// HasMadeNone reports whether a process is known to have made no Buffer yet.
func (l *Library) HasMadeNone(ctx context.Context, process host.ReadableProcess, bias uint64) bool {
	if l.Layout.BufferCounter == 0 {
		return false
	}
	made := []host.Piece{{Address: bias + l.Layout.BufferCounter, Data: make([]byte, 8)}}
	return process.Memory(ctx).Read(made) == nil && made[0].OK && binary.LittleEndian.Uint64(made[0].Data) == 0
}

// ReadAllocators calls report with the live buffers of allocators that Read may not find, such
// as those of a sub-device manager that is not active. It returns those that no longer exist. Bytes
// per bank that cannot be read are 0.
func (l *Library) ReadAllocators(ctx context.Context, process host.ReadableProcess, bias uint64, allocators []uint64, report func([]Buffer)) (closed []uint64, err error) {
	r := &reader{Library: l, memory: budgetOf(process.Memory(ctx)), bias: bias}
	for _, a := range allocators {
		var buffers []Buffer
		banks, err := r.banks(a)
		if err == nil {
			buffers, err = r.buffers(ctx, a, &banks)
		}
		switch {
		case err == nil || LacksSizesOnly(err):
			report(buffers)
		case onlyStale(err) == nil, errors.Is(err, errNoSet):
			closed = append(closed, a)
		default:
			return nil, err
		}
	}
	return closed, nil
}

// scanner is the search of one process.
type scanner struct {
	*reader
	report     func(Device, []Buffer)
	devices    map[uint64]bool
	allocators map[uint64]bool
	problems   []error // the first ones
	more       int     // others
	buffer     []byte  // scanBytes
}

// maxProblems bounds the problems of a process that its error names.
const maxProblems = 8

// problem adds a problem that does not end the search.
func (s *scanner) problem(err error) {
	if len(s.problems) < maxProblems {
		s.problems = append(s.problems, err)
	} else {
		s.more++
	}
}

// failed returns an error for all problems and the one that ended the search, if there are any.
func (s *scanner) failed(last error) error {
	problems := s.problems
	if s.more > 0 {
		problems = append(problems, fmt.Errorf("and %d more problems", s.more))
	}
	return errors.Join(append(problems, last)...)
}

// isLarge reports whether a mapping is scanned last, and slowly: malloc makes smaller ones
// for many objects, and the heap of brk(2).
func isLarge(m host.Mapping) bool { return m.Path != "[heap]" && m.End-m.Start > smallMapping }

func (s *scanner) run(ctx context.Context, process host.ReadableProcess) error {
	maps, err := process.DataMappings()
	if err != nil {
		return unlessGone(fmt.Errorf("reading the mappings of process %d: %w", process.PID, err))
	}
	if len(maps) == 0 {
		return host.ErrGone
	}
	for _, large := range []bool{false, true} {
		for _, m := range maps {
			if isLarge(m) != large {
				continue
			}
			if err := s.scan(ctx, process, m); err != nil {
				return s.failed(err)
			}
		}
	}
	return s.failed(nil)
}

// unlessGone returns host.ErrGone for an error that means that the process has ended.
func unlessGone(err error) error {
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return host.ErrGone
	}
	return err
}

// mappedMin is the smallest allocation that is worth skipping, in bytes.
const mappedMin = 1 << 20

// skipMapped returns the end of an allocation that begins in this page and that malloc has mapped
// separately, because it is larger than a device. glibc stores the size in front of it.
func skipMapped(page []byte, at, end uint64) uint64 {
	const isMapped = 2
	size := word(page, 8)
	bytes := size &^ 7
	if word(page, 0) != 0 || size&7 != isMapped || bytes < mappedMin || bytes%uint64(len(page)) != 0 || bytes > end-at {
		return at
	}
	return at + bytes
}

// scan searches the used pages of a mapping for devices.
func (s *scanner) scan(ctx context.Context, process host.ReadableProcess, m host.Mapping) error {
	page := uint64(os.Getpagesize())
	for at := m.Start; at < m.End; {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		n := min(scanBytes, m.End-at) / page
		flags, err := process.UsedPages(at, int(n))
		if err != nil {
			return unlessGone(fmt.Errorf("reading which memory is used: %w", err))
		}
		if len(flags) < 8 {
			return host.ErrGone // its memory is gone
		}
		if at, err = s.scanPages(ctx, at, flags[:len(flags)&^7], m); err != nil {
			return err
		}
		if isLarge(m) {
			select {
			case <-ctx.Done():
			case <-time.After(scanRest * time.Since(began)):
			}
		}
	}
	return nil
}

// scanPages reads used pages from an address on, and returns where to continue.
func (s *scanner) scanPages(ctx context.Context, at uint64, flags []byte, m host.Mapping) (uint64, error) {
	page := uint64(os.Getpagesize())
	wanted := uint64(pagePresent | pageSwapped)
	if isLarge(m) {
		wanted = pagePresent
	}
	var pages []host.Piece
	for i := range uint64(len(flags)) / 8 {
		if word(flags, int(i*8))&wanted != 0 {
			pages = append(pages, host.Piece{Address: at + i*page, Data: s.buffer[i*page : (i+1)*page]})
		}
	}
	if err := s.memory.Memory.Read(pages); err != nil { // without the budget: used pages are real memory
		return 0, err
	}
	skipped := at // the end of the last allocation that need not be searched
	for _, p := range pages {
		if !p.OK || p.Address < skipped { // not ok: unmapped meanwhile
			continue
		}
		if isLarge(m) {
			if skipped = skipMapped(p.Data, p.Address, m.End); skipped > p.Address {
				continue
			}
		}
		if err := s.search(ctx, p.Address, p.Data); err != nil {
			return 0, err
		}
	}
	return max(skipped, at+uint64(len(flags)/8)*page), nil
}

// search searches a page for devices.
func (s *scanner) search(ctx context.Context, at uint64, page []byte) error {
	mesh, device := s.bias+s.Kernel.MeshVtable, s.bias+s.Kernel.DeviceVtable
	for i, w := range unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(page))), len(page)/8) {
		if w == mesh || w == device {
			if err := s.discover(ctx, at+uint64(i)*8); err != nil {
				return err
			}
		}
	}
	return nil
}

// discover reads a device that may lie at an address.
func (s *scanner) discover(ctx context.Context, address uint64) error {
	if s.devices[address] {
		return nil
	}
	d, allocators, err := s.device(address)
	if err != nil {
		return onlyStale(err)
	}
	var list []uint64
	banks := make(map[uint64][event.BankedRegions]Bank)
	for _, a := range allocators {
		b, err := s.banks(a)
		if err := onlyStale(err); err != nil {
			return err
		}
		if err == nil {
			list, banks[a] = append(list, a), b
		}
	}
	if len(list) == 0 {
		return nil
	}
	s.devices[address] = true
	if d.Runtime, err = s.runtimePrograms(&d); onlyStale(err) != nil {
		return err
	}
	reported := false
	for i, a := range list {
		if s.allocators[a] {
			continue // shared with another device
		}
		b := banks[a]
		buffers, err := s.buffers(ctx, a, &b)
		if err != nil && (isFinal(err) || ctx.Err() != nil) {
			return err
		}
		if err != nil && !s.holds(address, a) {
			continue // closed meanwhile
		}
		s.allocators[a] = true
		if err != nil {
			s.problem(err)
		}
		if !d.Mesh && len(s.Layout.Fields[ownAllocator]) > 0 && len(buffers) == 0 && err == nil {
			continue // no probe reports when it is closed
		}
		if i > 0 && len(buffers) == 0 && err == nil {
			continue // of a sub-device: its first buffer will report it
		}
		d.Allocator, d.Banks, reported = a, b, true
		for len(buffers) > buffersAtOnce {
			s.report(d, buffers[:buffersAtOnce])
			buffers = buffers[buffersAtOnce:]
		}
		s.report(d, buffers)
	}
	if !reported {
		s.report(d, nil)
	}
	return nil
}

func (s *scanner) holds(device, allocator uint64) bool {
	_, allocators, err := s.device(device)
	if err != nil || !slices.Contains(allocators, allocator) {
		return false
	}
	_, err = s.banks(allocator)
	return err == nil
}

// onlyStale drops an error that means that an object was not a device.
func onlyStale(err error) error {
	if errors.Is(err, errInvalid) || errors.Is(err, errUnreadable) {
		return nil
	}
	return err
}
