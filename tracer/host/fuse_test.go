package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
	"unsafe"

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
		if user != 0 {
			opened := make(chan error, 1)
			go func() {
				_, err := OpenPublic(dir + "/folder/file")
				opened <- err
			}()
			select {
			case err := <-opened:
				qt.Check(t, qt.ErrorIs(err, ErrServedByUser), qt.Commentf("on the way"))
			case <-time.After(time.Minute):
				device.Close()
				t.Error("the way to a file waits for an answer")
			}
		}
		qt.Check(t, qt.IsNil(unix.Unmount(dir, unix.MNT_DETACH)))
		qt.Assert(t, qt.IsNil(err))
		var stat unix.Statx_t
		qt.Check(t, qt.IsNil(unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &stat)))
		fusectl, err := openFusectl()
		qt.Assert(t, qt.IsNil(err))
		owner, listed := serverOf(fusectl, fmt.Sprint(stat.Dev_minor))
		fusectl.Close()
		qt.Check(t, qt.IsTrue(listed))
		qt.Check(t, qt.Equals(owner, user))
		if user != 0 {
			_, err = reopen(fd, os.Getpid(), dir)
			qt.Check(t, qt.IsTrue(errors.Is(err, ErrServedByUser)), qt.Commentf("%v", err))
		}
		unix.Close(fd)
		device.Close()
		device, err = os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		qt.Assert(t, qt.IsNil(err))
	}
}

// The names under which this program maps a file of an overlay in its own user namespace, and
// serves the file system below that.
const tenantName, serverName = "tenant", "server"

func init() {
	switch os.Args[0] {
	case tenantName:
		fmt.Println(mapOverlaid(os.Args[1] == "fuse"))
		_ = unix.Pause()
	case serverName:
		serveExceptWrites(os.NewFile(3, "fuse"))
		os.Exit(0)
	}
}

// mapOverlaid returns the address at which it maps /mnt/merged/file as code, or an error.
func mapOverlaid(served bool) any {
	err := unix.Mount("tmpfs", "/mnt", "tmpfs", 0, "")
	for _, dir := range []string{"lower", "upper", "work", "merged"} {
		err = errors.Join(err, os.Mkdir("/mnt/"+dir, 0o777))
	}
	if served {
		device, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		server := &exec.Cmd{
			Path: "/proc/self/exe", Args: []string{serverName}, ExtraFiles: []*os.File{device},
			SysProcAttr: &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL},
		}
		options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", device.Fd())
		if err := errors.Join(unix.Mount("served", "/mnt/lower", "fuse", 0, options), server.Start()); err != nil {
			return err
		}
		device.Close() // so that the file system ends with its server
	} else {
		err = errors.Join(err, os.WriteFile("/mnt/lower/file", make([]byte, 4096), 0o666))
	}
	err = errors.Join(err, unix.Mount("overlay", "/mnt/merged", "overlay", 0, "lowerdir=/mnt/lower,upperdir=/mnt/upper,workdir=/mnt/work,userxattr"))
	file, openErr := os.Open("/mnt/merged/file")
	if err = errors.Join(err, openErr); err != nil {
		return err
	}
	mem, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
}

// startTenant starts an ordinary user's process that has mapped a file of an overlay.
func startTenant(t *testing.T, kind string) (pid int, start uint64) {
	t.Helper()
	ids := []syscall.SysProcIDMap{{HostID: 12345, Size: 1}}
	tenant := &exec.Cmd{Path: "/proc/self/exe", Args: []string{tenantName, kind}, SysProcAttr: &syscall.SysProcAttr{
		Pdeathsig: unix.SIGKILL, Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, Credential: &syscall.Credential{},
		UidMappings: ids, GidMappings: ids,
	}}
	out, err := tenant.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	if err := tenant.Start(); err != nil {
		t.Skipf("no user namespaces: %v", err)
	}
	t.Cleanup(func() {
		_ = tenant.Process.Kill()
		_ = tenant.Wait()
	})
	text := make([]byte, 1000)
	n, err := out.Read(text)
	qt.Assert(t, qt.IsNil(err))
	_, err = fmt.Sscan(string(text[:n]), &start)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", text[:n]))
	return tenant.Process.Pid, start
}

// An overlay in a user namespace is asked with the rights of the user who mounted it. A file system
// that this user serves and that is below it would then have to answer.
func TestOverlayOfAUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("other users' processes are for root")
	}
	dir := t.TempDir()
	for _, of := range []string{"lower", "lowest", "merged"} {
		qt.Assert(t, qt.IsNil(os.Mkdir(dir+"/"+of, 0o700)))
	}
	qt.Assert(t, qt.IsNil(os.WriteFile(dir+"/lower/file", nil, 0o600)))
	qt.Assert(t, qt.IsNil(unix.Mount("overlay", dir+"/merged", "overlay", 0, "lowerdir="+dir+"/lower:"+dir+"/lowest")))
	defer unix.Unmount(dir+"/merged", unix.MNT_DETACH)

	// without any file system of a user on the host, no overlay leads to one
	alone, start := startTenant(t, "tmpfs")
	fusectl, err := openFusectl()
	qt.Assert(t, qt.IsNil(err))
	others := anyServer(fusectl)
	fusectl.Close()
	if !others {
		file, err := new(Proc).OpenMapped(alone, start, start+4096)
		qt.Assert(t, qt.IsNil(err))
		file.Close()
	}

	pid, served := startTenant(t, "fuse")
	_, err = new(Proc).OpenMapped(pid, served, served+4096)
	qt.Check(t, qt.ErrorIs(err, ErrServedByUser))
	_, err = OpenInRoot(pid, "/mnt/merged/file")
	qt.Check(t, qt.ErrorIs(err, ErrServedByUser))
	_, err = new(Proc).OpenMapped(alone, start, start+4096)
	qt.Check(t, qt.ErrorIs(err, ErrServedByUser), qt.Commentf("what is below an overlay cannot be seen"))
	for _, ofHost := range []string{"/proc/version", dir + "/merged/file"} {
		file, err := OpenInRoot(pid, ofHost)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", ofHost))
		file.Close()
	}

	// a process of the host's own namespaces may have got the file from another one
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/root/mnt/merged/file", pid), unix.O_PATH, 0)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(fd)
	_, err = reopen(fd, os.Getpid(), "file")
	qt.Check(t, qt.ErrorIs(err, ErrServedByUser))
}
