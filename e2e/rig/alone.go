package rig

import (
	"fmt"
	"os"
	"syscall"
)

// Alone waits until no other process of this host, of any checkout, is alone, and is so until
// this process ends. go test runs packages beside each other, and a test that traces the host
// would see the programs that others start.
func Alone() error {
	// a lock of a folder that everybody has needs no file
	temp, err := syscall.Open(os.TempDir(), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err == nil {
		err = syscall.Flock(temp, syscall.LOCK_EX)
	}
	if err != nil {
		return fmt.Errorf("waiting for other tests: %w", err)
	}
	return nil
}
