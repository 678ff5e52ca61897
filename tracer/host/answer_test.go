package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/fuzztest"
)

// stuckName is the name under which this program keeps the lock of its address space: it replaces
// the mapping of a file that it has written to, and whose file system does not answer.
const stuckName = "stuck"

func init() {
	if os.Args[0] != stuckName {
		return
	}
	page := uintptr(os.Getpagesize())
	at, _, errno := unix.Syscall6(unix.SYS_MMAP, 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED, 3, 0)
	if errno == 0 {
		*(*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&at))) = 1
		fmt.Println("ready")
		_, _, errno = unix.Syscall6(unix.SYS_MMAP, at, page, unix.PROT_READ, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_FIXED, ^uintptr(0), 0)
	}
	fmt.Println(errno)
	select {}
}

// The numbers of requests to a FUSE file system.
const lookup, getattr, open, read, write, statfs, opendir, initialize, interrupt = 1, 3, 14, 15, 16, 17, 27, 26, 36

// serveExceptWrites answers the requests to a file system with one file, except for writes.
func serveExceptWrites(device *os.File) { serve(device, func(op uint32) bool { return op != write }) }

// serve answers the requests to a file system with one file that answers says.
func serve(device *os.File, answers func(op uint32) bool) {
	order := binary.LittleEndian
	attributes := make([]byte, 88)
	order.PutUint64(attributes, 2)
	order.PutUint64(attributes[8:], 1<<20)
	order.PutUint32(attributes[60:], unix.S_IFREG|0o666)
	order.PutUint32(attributes[64:], 1) // links
	order.PutUint32(attributes[80:], 4096)
	request := make([]byte, 1<<17)
	for {
		n, err := device.Read(request)
		if errors.Is(err, unix.ENOENT) { // interrupted meanwhile
			continue
		}
		if err != nil || n < 40 {
			return
		}
		op, answer, errno := order.Uint32(request[4:]), []byte(nil), unix.Errno(0)
		if !answers(op) {
			continue
		}
		switch op {
		case initialize:
			answer = make([]byte, 64)
			order.PutUint32(answer, 7)
			order.PutUint32(answer[4:], 31)
			order.PutUint32(answer[20:], 1<<16) // bytes of a write
		case lookup:
			answer = append(make([]byte, 40), attributes...)
			order.PutUint64(answer, 2)
			order.PutUint64(answer[16:], 3600)
			order.PutUint64(answer[24:], 3600)
		case getattr:
			answer = append(make([]byte, 16), attributes...)
			order.PutUint64(answer, 3600)
			if order.Uint64(request[16:]) == 1 { // the folder
				order.PutUint64(answer[16:], 1)
				order.PutUint32(answer[16+60:], unix.S_IFDIR|0o777)
			}
		case statfs:
			answer = make([]byte, 80)
		case open, opendir:
			answer = make([]byte, 16)
		case read:
			answer = make([]byte, order.Uint32(request[56:]))
		case interrupt, 2:
			continue
		default:
			errno = unix.ENOSYS
		}
		header := make([]byte, 16)
		order.PutUint32(header, uint32(16+len(answer)))
		order.PutUint32(header[4:], uint32(-int32(errno)))
		copy(header[8:], request[8:16])
		_, _ = device.Write(append(header, answer...))
	}
}

// servedFile returns a file of a file system of root's that answers what answers says. end ends it with all
// requests to it.
func servedFile(t *testing.T, answers func(op uint32) bool) (file *os.File, end func()) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil || os.Geteuid() != 0 {
		t.Skip("mounting a FUSE file system needs root and /dev/fuse")
	}
	device := os.NewFile(uintptr(fd), "fuse")
	t.Cleanup(func() { device.Close() })
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd))))
	end = sync.OnceFunc(func() { _ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH) })
	t.Cleanup(end)
	go serve(device, answers)
	file, err = os.OpenFile(dir+"/file", os.O_RDWR, 0)
	qt.Assert(t, qt.IsNil(err))
	return file, end
}

// A mapped file whose file system stops answering is given up, and so are others of the user's without
// another wait.
func TestFileThatDoesNotOpen(t *testing.T) {
	var silent atomic.Bool
	file, end := servedFile(t, func(op uint32) bool { return op != open || !silent.Load() })
	defer file.Close()
	mem, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Munmap(mem)
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	p := Proc{patience: 50 * time.Millisecond}
	opened, err := p.OpenMapped(os.Getpid(), start, start+4096)
	qt.Assert(t, qt.IsNil(err))
	opened.Close()
	silent.Store(true)
	_, err = p.OpenMapped(os.Getpid(), start, start+4096)
	qt.Check(t, qt.ErrorIs(err, ErrNoAnswer))
	p.patience = time.Hour // one wait is enough
	fuzztest.Ends("opening others", func() {
		for range 100 {
			_, err = p.OpenMapped(os.Getpid(), start, start+4096)
			qt.Check(t, qt.ErrorIs(err, ErrNoAnswer))
		}
	})
	end()
}

// A process that keeps its lock for ever is given up, and with it others of the same user for a
// while. Those of other users are read.
func TestProcessThatDoesNotAnswer(t *testing.T) {
	file, end := servedFile(t, func(op uint32) bool { return op != write })

	p := Proc{patience: 50 * time.Millisecond}
	stuck := &exec.Cmd{Path: "/proc/self/exe", Args: []string{stuckName}, ExtraFiles: []*os.File{file}, SysProcAttr: &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}}
	out, err := stuck.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	err = stuck.Start()
	file.Close() // else this process could not end while the file system does not answer
	qt.Assert(t, qt.IsNil(err))
	pid := stuck.Process.Pid
	defer func() {
		end()
		_ = stuck.Process.Kill()
		_ = stuck.Wait()
	}()
	var line [6]byte
	_, err = out.Read(line[:])
	qt.Assert(t, qt.IsNil(err))
	unanswered := func() bool {
		_, err := p.UsedPages(pid, 1<<20, 1)
		return errors.Is(err, ErrNoAnswer)
	}
	for deadline := time.Now().Add(time.Minute); !unanswered(); {
		qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)))
	}
	p.patience = time.Hour // one wait is enough
	fuzztest.Ends("asking again", func() {
		for range 100 {
			_, err = p.CodeMappings(pid)
			qt.Check(t, qt.ErrorIs(err, ErrNoAnswer))
			_, err = p.OpenMapped(pid, 1<<20, 2<<20)
			qt.Check(t, qt.ErrorIs(err, ErrNoAnswer))
		}
	})
	qt.Check(t, qt.IsFalse(p.HasNoMemory(pid)))
	_, err = p.CodeMappings(os.Getpid())
	qt.Check(t, qt.IsNil(err))

	end()
	answers := func() bool { _, err := p.CodeMappings(pid); return err == nil }
	for deadline := time.Now().Add(2 * time.Minute); !answers(); {
		qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)))
		time.Sleep(10 * time.Millisecond)
	}
}

// TestSilence: one wait, as on a busy host, has no consequences once the read has returned. Several at once have.
func TestSilence(t *testing.T) {
	p := Proc{patience: time.Millisecond}
	pid := os.Getpid()
	wait := func(tookNs uint64) {
		t.Helper()
		release := make(chan bool)
		_, err := answered(&p, pid, func() (int, error) { <-release; return 1, nil })
		qt.Assert(t, qt.ErrorIs(err, ErrNoAnswer))
		s := p.silences[ownerOf(pid)]
		qt.Check(t, qt.IsTrue(p.isSilent(pid))) // while it waits
		close(release)
		returned := func() bool { p.mu.Lock(); defer p.mu.Unlock(); return s.waiting == 0 }
		for deadline := time.Now().Add(time.Minute); !returned(); {
			qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)))
			time.Sleep(time.Millisecond)
		}
		p.mu.Lock()
		s.tookNs += tookNs
		p.mu.Unlock()
	}
	wait(3e9)
	qt.Check(t, qt.IsFalse(p.isSilent(pid)))
	wait(3e9)
	qt.Check(t, qt.IsTrue(p.isSilent(pid)))
	s := p.silences[ownerOf(pid)]
	s.atNs -= 25e9 // later
	qt.Check(t, qt.IsFalse(p.isSilent(pid)))
	wait(0)
	qt.Check(t, qt.IsFalse(p.isSilent(pid)))
	s.atNs -= 60e9
	qt.Check(t, qt.IsFalse(p.isSilent(pid)))
	qt.Check(t, qt.HasLen(p.silences, 0))
}
