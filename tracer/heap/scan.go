package heap

// This file looks for what a process held before it was attached: for the devices in
// its memory, and from there for their buffers.

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

const (
	// smallMapping is what malloc makes at most for many objects, in bytes; larger
	// ones come last, and slowly.
	smallMapping = 64 << 20
	// scanBytes is how much is read at once.
	scanBytes = 1 << 20
	// scanRest is how long the scan of large mappings rests, for as long as it works.
	scanRest = 3
)

// Bits of /proc/PID/pagemap.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
)

// Read searches a process's memory for devices, and calls found for each with what
// is allocated on it. The process goes on meanwhile: what it allocates and frees
// while it is read may be among it or not. The error says what could not be read;
// what found was called with is right.
func (l *Library) Read(ctx context.Context, pid int, bias uint64, found func(Device, []Buffer)) error {
	late, err := l.objectLayout()
	if err != nil {
		return err
	}
	r := &reader{objectLayout: late, memory: &processMemory{pid: pid}, bias: bias}
	s := &scanner{
		reader: r, found: found, buffer: make([]byte, scanBytes),
		devices: make(map[uint64]bool), allocators: make(map[uint64]bool),
	}
	return s.run(ctx, pid)
}

// scanner is the search through one process.
type scanner struct {
	*reader
	found      func(Device, []Buffer)
	devices    map[uint64]bool
	allocators map[uint64]bool
	problems   []error
	buffer     []byte // scanBytes
}

// heapMap is a mapping that objects may lie in.
type heapMap struct {
	start, end uint64
	heap       bool // of brk(2)
}

func (m heapMap) large() bool { return !m.heap && m.end-m.start > smallMapping }

// heapMaps are a process's private writable mappings that are no file's, those
// first that are likeliest to have small objects.
func heapMaps(pid int) ([]heapMap, error) {
	text, err := os.ReadFile(host.ProcDir(pid) + "/maps")
	if err != nil {
		return nil, err
	}
	var maps []heapMap
	for line := range strings.Lines(string(text)) {
		if m, ok := parseHeapLine(strings.TrimSpace(line)); ok {
			maps = append(maps, m)
		}
	}
	rank := func(m heapMap) int {
		switch {
		case m.heap:
			return 0
		case !m.large():
			return 1
		}
		return 2
	}
	slices.SortStableFunc(maps, func(a, b heapMap) int { return cmp.Compare(rank(a), rank(b)) })
	return maps, nil
}

// parseHeapLine reads a line of /proc/PID/maps, and reports false for what has no
// objects.
func parseHeapLine(line string) (heapMap, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.HasPrefix(fields[1], "rw") || !strings.HasSuffix(fields[1], "p") || fields[4] != "0" {
		return heapMap{}, false
	}
	if len(fields) > 5 && fields[5] != "[heap]" && !strings.HasPrefix(fields[5], "[anon") {
		return heapMap{}, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	end, err2 := strconv.ParseUint(to, 16, 64)
	return heapMap{start, end, len(fields) > 5 && fields[5] == "[heap]"}, err == nil && err2 == nil && start < end
}

func (s *scanner) run(ctx context.Context, pid int) error {
	maps, err := heapMaps(pid)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("reading the mappings of process %d: %w", pid, err)
	}
	pages, err := os.Open(host.ProcDir(pid) + "/pagemap")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return errGone
	}
	if err != nil {
		return fmt.Errorf("reading which memory process %d uses: %w", pid, err)
	}
	defer pages.Close()
	for _, m := range maps {
		if err := s.scan(ctx, pages, m); err != nil {
			return errors.Join(append(s.problems, err)...)
		}
	}
	return errors.Join(s.problems...)
}

// mappedMin is the size from which on it is worth to skip an allocation, in bytes.
const mappedMin = 1 << 20

// skipMapped is the end of the one allocation that a page begins, where malloc has
// mapped it by itself: it is too large for a device. glibc says so before it.
func skipMapped(page []byte, at, end uint64) uint64 {
	const isMapped = 2
	size := word(page, 8)
	bytes := size &^ 7
	if word(page, 0) != 0 || size&7 != isMapped || bytes < mappedMin || bytes%uint64(len(page)) != 0 || bytes > end-at {
		return at
	}
	return at + bytes
}

// scan looks for devices in what a process uses of a mapping.
func (s *scanner) scan(ctx context.Context, pages io.ReaderAt, m heapMap) error {
	page := uint64(os.Getpagesize())
	flags := make([]byte, scanBytes/page*8)
	for at := m.start; at < m.end; {
		if err := ctx.Err(); err != nil {
			return err
		}
		began := time.Now()
		n := min(scanBytes, m.end-at) / page
		k, err := pages.ReadAt(flags[:n*8], int64(at/page*8))
		if err != nil && !errors.Is(err, io.EOF) {
			return fmt.Errorf("reading which memory is used: %w", err)
		}
		if k < 8 {
			return errGone // its memory has no pages any more
		}
		if at, err = s.scanPages(ctx, at, flags[:k/8*8], m); err != nil {
			return err
		}
		if m.large() {
			select {
			case <-ctx.Done():
			case <-time.After(scanRest * time.Since(began)):
			}
		}
	}
	return nil
}

// scanPages reads pages from an address on that are used, and says where to go on.
func (s *scanner) scanPages(ctx context.Context, at uint64, flags []byte, m heapMap) (uint64, error) {
	page := uint64(os.Getpagesize())
	wanted := uint64(pagePresent | pageSwapped)
	if m.large() {
		wanted = pagePresent
	}
	next := at + uint64(len(flags)/8)*page
	var pieces []piece
	for i := 0; i*8 < len(flags); i++ {
		if binary.LittleEndian.Uint64(flags[i*8:])&wanted == 0 {
			continue
		}
		start := at + uint64(i)*page
		if n := len(pieces); n > 0 && pieces[n-1].address+uint64(len(pieces[n-1].data)) == start {
			p := &pieces[n-1]
			p.data = p.data[:len(p.data)+int(page)]
			continue
		}
		pieces = append(pieces, piece{address: start, data: s.buffer[i*int(page) : (i+1)*int(page)]})
	}
	if err := s.memory.read(pieces); err != nil {
		return 0, err
	}
	if slices.ContainsFunc(pieces, func(p piece) bool { return !p.ok && len(p.data) > int(page) }) {
		// some of it was unmapped meanwhile: page by page the rest can be read
		var single []piece
		for _, p := range pieces {
			for i := uint64(0); i < uint64(len(p.data)); i += page {
				single = append(single, piece{address: p.address + i, data: p.data[i : i+page : i+page]})
			}
		}
		pieces = single
		if err := s.memory.read(pieces); err != nil {
			return 0, err
		}
	}
	for _, p := range pieces {
		if !p.ok {
			continue // unmapped meanwhile
		}
		for i := uint64(0); i < uint64(len(p.data)); {
			if m.large() {
				if end := skipMapped(p.data[i:i+page], p.address+i, m.end); end > p.address+i {
					next = max(next, end)
					i = end - p.address
					continue
				}
			}
			if err := s.search(ctx, p.address+i, p.data[i:i+page]); err != nil {
				return 0, err
			}
			i += page
		}
	}
	return next, nil
}

// search looks for devices in a page.
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
	reported := false
	for _, a := range list {
		if s.allocators[a] {
			continue // it is another device's as well
		}
		b := banks[a]
		buffers, err := s.buffers(ctx, a, &b)
		if err != nil && (errors.Is(err, errGone) || ctx.Err() != nil) {
			return err
		}
		if err != nil && !s.holds(address, a) {
			continue // closed meanwhile
		}
		s.allocators[a] = true
		if err != nil {
			s.problems = append(s.problems, err)
		}
		if !d.Mesh && s.own != bpf.NoField && len(buffers) == 0 && err == nil {
			continue // nothing tells when it is closed
		}
		d.Allocator, d.Banks, reported = a, b, true
		s.found(d, buffers)
	}
	if !reported {
		s.found(d, nil)
	}
	return nil
}

// holds reports whether a device has an allocator, still.
func (s *scanner) holds(device, allocator uint64) bool {
	_, allocators, err := s.device(device)
	if err != nil || !slices.Contains(allocators, allocator) {
		return false
	}
	_, err = s.banks(allocator)
	return err == nil
}

// onlyStale drops an error that means that something is not what it looked like.
func onlyStale(err error) error {
	if errors.Is(err, errStale) || errors.Is(err, errUnreadable) {
		return nil
	}
	return err
}
