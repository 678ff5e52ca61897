package host

import (
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// The holder of a lease on a file that it maps makes those wait that open the file, for up to
// 45 s. OpenMapped returns at once, and opens the file when the lease is gone.
func TestOpenMappedDoesNotWaitForALease(t *testing.T) {
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "leased.so"), os.O_RDWR|os.O_CREATE, 0o700)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Assert(t, qt.IsNil(file.Truncate(4096)))
	mem, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Munmap(mem)
	_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	qt.Assert(t, qt.IsNil(err))

	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	opened := make(chan error, 1)
	go func() {
		f, err := new(Proc).OpenMapped(os.Getpid(), start, start+4096)
		if err == nil {
			f.Close()
		}
		opened <- err
	}()
	select {
	case err = <-opened:
	case <-time.After(30 * time.Second):
		EndLease(file)
		t.Fatal("still waiting for the holder of the lease")
	}
	qt.Check(t, qt.ErrorIs(err, unix.EWOULDBLOCK))

	EndLease(file)
	f, err := new(Proc).OpenMapped(os.Getpid(), start, start+4096)
	qt.Assert(t, qt.IsNil(err))
	f.Close()
}

// A writer is reported even if the thread that took the lease has ended.
func TestLeaseOfThreadThatEnded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "library.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("text"), 0o700)))
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	breaks := make(chan os.Signal, 1)
	signal.Notify(breaks, unix.SIGIO)
	defer signal.Stop(breaks)
	taken, thread := make(chan error), 0
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		thread = unix.Gettid()
		taken <- TakeLease(file)
	}()
	qt.Assert(t, qt.IsNil(<-taken))
	if thread == os.Getpid() {
		t.Skip("the first thread never ends")
	}
	for unix.Tgkill(os.Getpid(), thread, 0) == nil {
		time.Sleep(time.Millisecond)
	}
	_, err = os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	qt.Check(t, qt.ErrorIs(err, unix.EWOULDBLOCK))
	select {
	case <-breaks:
	case <-time.After(time.Minute):
		t.Error("no signal")
	}
	qt.Check(t, qt.IsTrue(LeaseBroken(file)))
}
