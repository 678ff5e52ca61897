package host

import (
	"context"
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// silentMemory returns two pages of this process. Reads of the second one do not return until
// answer is called.
func silentMemory(t *testing.T) (at uint64, answer func()) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Skipf("userfaultfd(2), which is for root: %v", errno)
	}
	faults := os.NewFile(fd, "faults")
	t.Cleanup(func() { faults.Close() })
	page := os.Getpagesize()
	mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { _ = unix.Munmap(mem) })
	binary.LittleEndian.PutUint64(mem, 42)
	at = uint64(uintptr(unsafe.Pointer(&mem[0])))
	const (
		apiVersion, api, register, missing = 0xaa, 0xc018aa3f, 0xc020aa00, 1
	)
	for _, call := range []struct {
		request uintptr
		words   []uint64
	}{
		{api, []uint64{apiVersion, 0, 0}},
		{register, []uint64{at + uint64(page), uint64(page), missing, 0}},
	} {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, call.request, uintptr(unsafe.Pointer(&call.words[0])))
		runtime.KeepAlive(call.words)
		qt.Assert(t, qt.Equals(errno, 0))
	}
	return at, func() { faults.Close() }
}

// A read that does not return is given up, with its reader, and others go on.
func TestReadThatDoesNotReturn(t *testing.T) {
	at, answer := silentMemory(t)
	r := NewReaders()
	defer r.Close()
	self := r.Of(os.Getpid())
	page := uint64(os.Getpagesize())
	words := make([]byte, 24)
	silent := []Piece{{Address: at, Data: words[:8]}, {Address: at + page, Data: words[8:16]}}

	began := time.Now()
	err := self.Memory(t.Context()).Read(silent)
	qt.Check(t, qt.ErrorIs(err, ErrNoAnswer))
	qt.Check(t, qt.IsTrue(time.Since(began) >= ReadPatience))

	some := []Piece{{Address: at, Data: words[:8]}, {Address: 8, Data: words[8:16]}, {Address: at, Data: words[16:]}}
	qt.Assert(t, qt.IsNil(self.Memory(t.Context()).Read(some)))
	qt.Check(t, qt.IsTrue(some[0].OK && !some[1].OK && some[2].OK))
	qt.Check(t, qt.Equals(binary.LittleEndian.Uint64(words), 42))

	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	err = self.Memory(ctx).Read(silent)
	qt.Check(t, qt.ErrorIs(err, context.Canceled))

	answer()
	qt.Check(t, qt.IsNil(self.Memory(t.Context()).Read(silent)))
	qt.Check(t, qt.IsTrue(silent[0].OK && silent[1].OK))
}

func TestReadEndedProcess(t *testing.T) {
	r := NewReaders()
	defer r.Close()
	err := r.Of(1 << 22).Memory(t.Context()).Read([]Piece{{Address: 4096, Data: make([]byte, 8)}}) // there is no such id
	qt.Check(t, qt.ErrorIs(err, ErrGone))
	qt.Check(t, qt.Equals(r.Of(1<<22).CommandLine(t.Context(), Now()), ""))
}

// Reads that were given up and have not returned count for the user of their process.
func TestReadsOfAUserAreBounded(t *testing.T) {
	r := NewReaders()
	defer r.Close()
	for range readersPerUser {
		_, err := r.acquire(t.Context(), 1000)
		qt.Assert(t, qt.IsNil(err))
	}
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	_, err := r.acquire(ctx, 1000)
	qt.Check(t, qt.ErrorIs(err, context.DeadlineExceeded))
	_, err = r.acquire(t.Context(), 1001)
	qt.Check(t, qt.IsNil(err))
	time.AfterFunc(10*time.Millisecond, func() { r.release(1000) })
	_, err = r.acquire(t.Context(), 1000)
	qt.Check(t, qt.IsNil(err))
}
