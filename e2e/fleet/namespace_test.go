package fleet

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// A namespace is a network of its own, which ends with the test.
type namespace struct{ f *os.File }

// in calls work in a namespace; work must not start goroutines that use the network.
func (n namespace) in(work func()) {
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: the thread ends with the goroutine
		if err := unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET); err != nil {
			panic(err)
		}
		work()
	}()
	<-done
}

// path names the namespace for other processes.
func (n namespace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), n.f.Fd()) }

func newNamespace(t *testing.T) namespace {
	t.Helper()
	var f *os.File
	var err error
	done := make(chan bool)
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			f, err = os.Open("/proc/thread-self/ns/net")
		}
	}()
	<-done
	qt.Assert(t, qt.IsNil(err), qt.Commentf("it needs root"))
	t.Cleanup(func() { f.Close() })
	n := namespace{f}
	n.ip(t, "link set lo up")
	return n
}

func (n namespace) ip(t *testing.T, args string) {
	t.Helper()
	n.in(func() { run(t, exec.Command("ip", strings.Fields(args)...)) })
}
