package host

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// A file system that an ordinary user serves is recognized without asking it. The one here
// answers nothing, and lets root in, as the users of hosts with user_allow_other can.
func TestFileSystemOfAUser(t *testing.T) {
	device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil || os.Geteuid() != 0 {
		t.Skip("mounting a FUSE file system needs root and /dev/fuse")
	}
	defer device.Close() // which ends the file system
	for _, user := range []int{0, 12345} {
		dir := t.TempDir()
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=0,allow_other", device.Fd(), user)
		qt.Assert(t, qt.IsNil(unix.Mount("silent", dir, "fuse", 0, options)))
		fd, err := unix.Open(dir, unix.O_PATH, 0)
		qt.Check(t, qt.IsNil(unix.Unmount(dir, unix.MNT_DETACH)))
		qt.Assert(t, qt.IsNil(err))
		var stat unix.Statx_t
		qt.Check(t, qt.IsNil(unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)))
		qt.Check(t, qt.Equals(servedByUser(stat.Dev_major, stat.Dev_minor), user != 0))
		if user != 0 {
			_, err = reopen(fd, dir)
			qt.Check(t, qt.IsTrue(errors.Is(err, ErrServedByUser)), qt.Commentf("%v", err))
		}
		unix.Close(fd)
		device.Close()
		device, err = os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		qt.Assert(t, qt.IsNil(err))
	}
}
