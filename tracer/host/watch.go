package host

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// NewMapping is a new executable mapping of a process.
type NewMapping struct {
	Mapping
	TimeNs   uint64
	PID      int
	Existing bool // it existed before the watch
}

// FileID is a file's identity on this host. The device number is the kernel's own, as in
// /proc/PID/maps: on btrfs and overlayfs stat(2) returns another.
type FileID struct {
	Major, Minor uint32
	Inode        uint64
	// Generation distinguishes files that had the same inode one after the other; 0 if
	// unknown.
	Generation uint64
}

// MappingWatch reports executable mappings as they are made. It reads perf's MMAP2 records,
// which every kernel has and which cost other processes no more than perf's record of each
// new code mapping.
type MappingWatch struct {
	rings []perfRing // of the CPUs that are online
	wake  int
	done  atomic.Bool
	cpus  *os.File // the kernel's list of these
	// online is what the list said when the rings were opened, and asleepNs how long the host had been
	// suspended.
	online   []byte
	asleepNs int64
	// checkedNs is when the rings were last checked: see areDetached.
	checkedNs uint64
}

type perfRing struct {
	fd int
	// enabledNs is how long the kernel had recorded for it at the last check.
	enabledNs uint64
	meta      *unix.PerfEventMmapPage
	mem       []byte
	data      []byte
}

const perfRingPages = 256

// How often new mappings are read, in ms: a small part of the time that a program takes
// from loading a library to its first allocation. Waking the reader for each one would make
// an mmap of code several times as expensive for all processes.
const (
	MappingPollMs = 10
	// CommandPollMs applies to a command until it has loaded a library: it may end soon.
	CommandPollMs = 2
)

// WatchMappings watches all processes of the host: a watch on one process would follow a
// single thread, and end when another thread calls exec.
func WatchMappings() (_ *MappingWatch, err error) {
	w := &MappingWatch{wake: -1}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if w.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return nil, fmt.Errorf("making an eventfd: %w", err)
	}
	if w.cpus, err = os.Open("/sys/devices/system/cpu/online"); err != nil {
		return nil, fmt.Errorf("watching for mapped libraries: %w", err)
	}
	_, err = w.openRings()
	return w, err
}

// openRings opens a ring for each CPU that is online, in place of those that are open, if other CPUs are
// online than when these were opened: a CPU that comes has no ring, and what goes, also while the host is
// suspended, detaches its ring for good. It reports whether it opened any.
func (w *MappingWatch) openRings() (opened bool, err error) {
	var page [4096]byte
	n, err := w.cpus.ReadAt(page[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("reading which processors are online: %w", err)
	}
	asleepNs := clock(unix.CLOCK_BOOTTIME) - clock(unix.CLOCK_MONOTONIC)
	if bytes.Equal(page[:n], w.online) && asleepNs < w.asleepNs+asleepLeastNs && !w.areDetached() {
		return false, nil
	}
	w.online, w.asleepNs = bytes.Clone(page[:n]), asleepNs
	w.closeRings()
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return false, fmt.Errorf("watching for mapped libraries: %w", err)
	}
	for cpu := range cpus {
		ring, err := openPerfRing(cpu)
		if errors.Is(err, unix.ENODEV) { // the CPU is offline
			continue
		}
		if err != nil {
			return false, fmt.Errorf("watching for mapped libraries: %w", err)
		}
		w.rings = append(w.rings, ring)
	}
	return true, nil
}

// checkNs is how often rings are checked. The kernel interrupts each CPU for it.
const checkNs = 10e9

// areDetached reports, now and then, whether a ring is detached: its CPU may have gone and come between two looks at the list.
func (w *MappingWatch) areDetached() bool {
	now := Now()
	if now < w.checkedNs+checkNs {
		return false
	}
	w.checkedNs = now
	detached := false
	for i := range w.rings {
		detached = w.rings[i].isDetached() || detached
	}
	return detached
}

// isDetached reports whether the kernel has recorded nothing for the ring since the last check.
func (r *perfRing) isDetached() bool {
	var values [2]uint64 // a count, and for how long the kernel has counted
	_, err := unix.Read(r.fd, unsafe.Slice((*byte)(unsafe.Pointer(&values)), unsafe.Sizeof(values)))
	last := r.enabledNs
	r.enabledNs = values[1]
	return err != nil || r.enabledNs <= last
}

// asleepLeastNs is less than a suspended host sleeps, and more than passes between reading two clocks.
const asleepLeastNs = 1e9

func openPerfRing(cpu int) (perfRing, error) {
	attr := unix.PerfEventAttr{
		Type:        unix.PERF_TYPE_SOFTWARE,
		Config:      unix.PERF_COUNT_SW_DUMMY,
		Size:        uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample_type: unix.PERF_SAMPLE_TIME,
		Read_format: unix.PERF_FORMAT_TOTAL_TIME_ENABLED,
		Bits: unix.PerfBitMmap | unix.PerfBitMmap2 | unix.PerfBitSampleIDAll |
			unix.PerfBitUseClockID | unix.PerfBitWatermark,
		Wakeup:  uint32(perfRingPages * os.Getpagesize() / 2),
		Clockid: unix.CLOCK_MONOTONIC,
	}
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w: kernels of Debian and Ubuntu ask for CAP_SYS_ADMIN if kernel.perf_event_paranoid is over 2: set it to 2 (sysctl), or add the capability", err)
	}
	if err != nil {
		return perfRing{}, fmt.Errorf("perf_event_open: %w", err)
	}
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, (1+perfRingPages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		if errors.Is(err, unix.EPERM) { // half of it is free
			err = fmt.Errorf("%w: without CAP_IPC_LOCK this takes 512 KiB of RLIMIT_MEMLOCK for each CPU (ulimit -l unlimited)", err)
		}
		return perfRing{}, fmt.Errorf("mapping perf's buffer: %w", err)
	}
	return perfRing{
		fd:   fd,
		meta: (*unix.PerfEventMmapPage)(unsafe.Pointer(&mem[0])),
		mem:  mem,
		data: mem[page:],
	}, nil
}

// Read reads new mappings at an interval in ms and passes them to handle, until the watch
// is interrupted or fails. It calls lost when some may be missing: the kernel had no room for them, or
// they were made by a CPU that had just come. handle may change the list.
func (w *MappingWatch) Read(every func() int, handle func([]NewMapping), lost func()) error {
	var polled []unix.PollFd
	var list []NewMapping
	for !w.done.Load() {
		polled = append(polled[:0], unix.PollFd{Fd: int32(w.wake), Events: unix.POLLIN})
		for _, r := range w.rings {
			polled = append(polled, unix.PollFd{Fd: int32(r.fd), Events: unix.POLLIN})
		}
		if _, err := unix.Poll(polled, every()); err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("poll: %w", err)
		}
		list = list[:0]
		for i := range w.rings {
			list = w.rings[i].drain(list, lost)
		}
		opened, err := w.openRings()
		if err != nil {
			return err
		}
		if opened {
			lost()
		}
		handle(list)
	}
	return nil
}

// Interrupt ends Read.
func (w *MappingWatch) Interrupt() {
	w.done.Store(true)
	one := [8]byte{1}
	_, _ = unix.Write(w.wake, one[:])
}

// Close releases the watch. Read must have returned.
func (w *MappingWatch) Close() {
	w.closeRings()
	w.cpus.Close()
	if w.wake >= 0 {
		unix.Close(w.wake)
	}
}

func (w *MappingWatch) closeRings() {
	for _, r := range w.rings {
		unix.Munmap(r.mem)
		unix.Close(r.fd)
	}
	w.rings = nil
}

// drain appends the new mappings in a ring to a list.
func (r *perfRing) drain(list []NewMapping, lost func()) []NewMapping {
	head := atomic.LoadUint64(&r.meta.Data_head)
	tail := r.meta.Data_tail
	size := uint64(len(r.data))
	var record []byte
	for tail < head {
		header := r.copy(record[:0], tail%size, 8)
		length := uint64(binary.NativeEndian.Uint16(header[6:]))
		if length < 8 || tail+length > head {
			tail = head // not a record; the ones behind it cannot be found
			lost()
			break
		}
		record = r.copy(header[:0], tail%size, length)
		switch binary.NativeEndian.Uint32(record) {
		case unix.PERF_RECORD_MMAP2:
			if m, ok := parseMmap2(record[8:]); ok {
				list = append(list, m)
			}
		case unix.PERF_RECORD_LOST:
			lost()
		}
		tail += length
	}
	atomic.StoreUint64(&r.meta.Data_tail, tail)
	return list
}

// copy appends n bytes of the ring from a position, wrapping at its end.
func (r *perfRing) copy(to []byte, from, n uint64) []byte {
	first := min(n, uint64(len(r.data))-from)
	to = append(to, r.data[from:from+first]...)
	return append(to, r.data[:n-first]...)
}

// parseMmap2 parses the body of a PERF_RECORD_MMAP2: u32 pid, tid; u64 addr, len, pgoff;
// u32 maj, min; u64 ino, generation; u32 prot, flags; the name; and, with sample_id_all,
// u64 time at its end.
func parseMmap2(b []byte) (NewMapping, bool) {
	if len(b) < 64+8 {
		return NewMapping{}, false
	}
	order := binary.NativeEndian
	start := order.Uint64(b[8:])
	return NewMapping{
		PID: int(order.Uint32(b)),
		Mapping: Mapping{
			Start: start, End: start + order.Uint64(b[16:]), Offset: order.Uint64(b[24:]),
			File: FileID{
				Major: order.Uint32(b[32:]), Minor: order.Uint32(b[36:]),
				Inode: order.Uint64(b[40:]), Generation: order.Uint64(b[48:]),
			},
			Path: unix.ByteSliceToString(b[64 : len(b)-8]),
		},
		TimeNs: order.Uint64(b[len(b)-8:]),
	}, true
}
