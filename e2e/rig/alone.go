package rig

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// host is a lock of a folder that everybody has, which needs no file.
var host = sync.OnceValues(func() (int, error) {
	return syscall.Open(os.TempDir(), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
})

// Alone waits until no other process of this host, of any checkout, is alone or beside others, and
// makes this one alone until it ends. go test runs packages beside each other, and a test that traces
// the host would see the programs that others start.
func Alone() error { return lock(syscall.LOCK_EX) }

// Beside waits until no other process is alone, and keeps others from being so until this one ends. It
// is for tests that start such programs and trace none but their own.
func Beside() error { return lock(syscall.LOCK_SH) }

func lock(how int) error {
	fd, err := host()
	if err == nil {
		err = syscall.Flock(fd, how)
	}
	if err != nil {
		return fmt.Errorf("waiting for other tests: %w", err)
	}
	return nil
}
