package kernel

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A Ring reads the records of the kernel side. Unlike cilium/ebpf's reader, it does not wait without an
// end for a record that is being written: the kernel may have preempted that thread. One goroutine uses it.
type Ring struct {
	poll           int // an epoll instance with the map
	consumer, data []byte
	records        []byte // the part of data with the records, twice
	read, written  *uint64
	record         []byte
}

// The two highest bits of a record's length, which is before it in 8 bytes.
const (
	recordBusy      = 1 << 31
	recordDiscarded = 1 << 30
	recordHead      = 8
)

// busyPause is how long to wait for a record that is being written.
const busyPause = 100 * time.Microsecond

func newRing(m *ebpf.Map) (_ *Ring, err error) {
	r := &Ring{poll: -1}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	page, size := os.Getpagesize(), int(m.MaxEntries())
	if r.consumer, err = unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping its first page: %w", err)
	}
	if r.data, err = unix.Mmap(m.FD(), int64(page), page+2*size, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mapping its records: %w", err)
	}
	r.records = r.data[page:]
	r.read, r.written = (*uint64)(unsafe.Pointer(&r.consumer[0])), (*uint64)(unsafe.Pointer(&r.data[0]))
	if r.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	return r, unix.EpollCtl(r.poll, unix.EPOLL_CTL_ADD, m.FD(), &unix.EpollEvent{Events: unix.EPOLLIN})
}

// Next returns the next record, which is valid until the next call; nil if there is none until a time. Then
// drained is true, or false if one is still being written.
func (r *Ring) Next(until time.Time) (record []byte, drained bool, err error) {
	for last := false; ; {
		record, busy := r.take()
		if record != nil {
			return record, false, nil
		}
		wait := time.Until(until)
		switch {
		case last || busy && wait <= 0:
			return nil, !busy, nil
		case busy:
			time.Sleep(min(wait, busyPause))
		case wait <= 0:
			last = true
		default:
			if last, err = r.wait(wait); err != nil {
				return nil, false, err
			}
		}
	}
}

// wait waits until the kernel side wakes the reader, or for a time. Most records wake nobody.
func (r *Ring) wait(most time.Duration) (timedOut bool, err error) {
	var events [1]unix.EpollEvent
	n, err := unix.EpollWait(r.poll, events[:], int((most+time.Millisecond-1)/time.Millisecond))
	if errors.Is(err, unix.EINTR) {
		return false, nil
	}
	return n == 0, err
}

// take takes the next record; nil if there is none. busy is true if one is being written.
func (r *Ring) take() (record []byte, busy bool) {
	at, end := atomic.LoadUint64(r.read), atomic.LoadUint64(r.written)
	mask := uint64(len(r.records)/2 - 1)
	for at < end {
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.records[at&mask])))
		if head&recordBusy != 0 {
			return nil, true
		}
		n := uint64(head &^ recordDiscarded)
		if head&recordDiscarded == 0 {
			begin := at&mask + recordHead
			record = append(r.record[:0], r.records[begin:begin+n]...)
			r.record = record
		}
		at += (recordHead + n + 7) &^ 7
		atomic.StoreUint64(r.read, at)
		if record != nil {
			return record, false
		}
	}
	return nil, false
}

// Close releases the ring.
func (r *Ring) Close() {
	if r.poll >= 0 {
		unix.Close(r.poll)
	}
	for _, memory := range [][]byte{r.consumer, r.data} {
		if memory != nil {
			_ = unix.Munmap(memory)
		}
	}
	*r = Ring{poll: -1}
}
