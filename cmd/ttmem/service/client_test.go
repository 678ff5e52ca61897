package service

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// listenAs listens as another user.
func listenAs(t *testing.T, uid int, path string) net.Listener {
	t.Helper()
	runtime.LockOSThread() // the user of this thread alone changes
	defer runtime.UnlockOSThread()
	become := func(uid int) {
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0))
		qt.Assert(t, qt.Equals(errno, 0))
	}
	become(uid)
	l, err := net.Listen("unix", path)
	become(0)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { l.Close() })
	return l
}

// Whoever may write in the socket's folder could answer in place of the service.
func TestAServiceOfAnotherUserIsNotTrusted(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who can listen as others")
	}
	dir, err := os.MkdirTemp("", "ttmem")
	qt.Assert(t, qt.IsNil(err))
	defer os.RemoveAll(dir)
	qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o777)))
	path := filepath.Join(dir, "s.sock")
	asked := false
	fake := http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })}
	defer fake.Close()
	go fake.Serve(listenAs(t, 12345, path))
	_, err = Dial(path)
	qt.Check(t, qt.ErrorMatches(err, "the service at .*/s.sock is not trusted: user 12345 listens there, neither root nor you"))
	qt.Check(t, qt.IsFalse(asked))
}

func TestAnEndlessAnswerIsAnError(t *testing.T) {
	path := socketPath(t)
	l, err := net.Listen("unix", path)
	qt.Assert(t, qt.IsNil(err))
	endless := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(versionHeader, "x")
		for err := error(nil); err == nil; {
			_, err = w.Write(make([]byte, 1<<20))
		}
	})}
	defer endless.Close()
	go endless.Serve(l)
	_, err = Dial(path)
	qt.Check(t, qt.ErrorMatches(err, "reading the health of the ttmem service at .*: it has more than 64 MiB"))
}

// While a socket's queue is full, a client waits for its turn.
func TestAFullQueueIsNoError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "full.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(fd)
	qt.Assert(t, qt.IsNil(unix.Bind(fd, &unix.SockaddrUnix{Name: path})))
	qt.Assert(t, qt.IsNil(unix.Listen(fd, 0)))
	for err == nil {
		var d net.Dialer
		var c net.Conn
		if c, err = d.DialContext(t.Context(), "unix", path); err == nil {
			defer c.Close()
		}
	}
	qt.Assert(t, qt.ErrorIs(err, unix.EAGAIN))
	done := make(chan error)
	go func() {
		c, err := connect(t.Context(), path)
		if err == nil {
			c.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(10 * connectInterval):
	}
	accepted, _, err := unix.Accept(fd)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(accepted)
	qt.Check(t, qt.IsNil(<-done))
}
