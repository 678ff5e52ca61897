package host

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrServedByUser: a file is on a FUSE file system of an ordinary user. It need not answer, and
// a thread that waits for it can be neither stopped nor killed.
var ErrServedByUser = errors.New("an ordinary user serves its file system")

// servedByUser reports whether a device is a FUSE file system of an ordinary user, wherever it is
// mounted. fusectl lists them all, each as a folder that belongs to its user.
func servedByUser(major, minor uint32) bool {
	if major != 0 {
		return false
	}
	list, err := openFusectl()
	if err != nil {
		return false
	}
	defer unix.Close(list)
	var stat unix.Stat_t
	return unix.Fstatat(list, fmt.Sprint(minor), &stat, 0) == nil && stat.Uid != 0
}

// openFusectl opens fusectl without mounting it anywhere; without CAP_SYS_ADMIN, where it is
// mounted.
func openFusectl() (int, error) {
	mount, err := mountFusectl()
	if err != nil {
		return unix.Open("/sys/fs/fuse/connections", unix.O_PATH|unix.O_CLOEXEC, 0)
	}
	return unix.Openat(mount, ".", unix.O_PATH|unix.O_CLOEXEC, 0)
}

// mountFusectl makes a mount that only this process has, and keeps it.
var mountFusectl = sync.OnceValues(func() (int, error) {
	config, err := unix.Fsopen("fusectl", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, err
	}
	defer unix.Close(config)
	if err := unix.FsconfigCreate(config); err != nil {
		return -1, err
	}
	return unix.Fsmount(config, unix.FSMOUNT_CLOEXEC, 0)
})

// UseSysAdmin does what this package later needs CAP_SYS_ADMIN for.
func UseSysAdmin() { _, _ = mountFusectl() }
