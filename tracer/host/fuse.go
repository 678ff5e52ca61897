package host

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrServedByUser: a file is on a FUSE file system of another ordinary user, or on an overlay that
// may lead to one. The user need not answer, and a thread that waits for that can be neither
// stopped nor killed. While the kernel waits for it to place a probe, no process of the host can fork.
var ErrServedByUser = errors.New("an ordinary user may serve its file system")

// checkAnswers returns ErrServedByUser for a file of a process whose file system may never answer.
// The caller keeps the file's mount in existence.
func checkAnswers(file *unix.Statx_t, pid int) error {
	if file.Dev_major != 0 { // on a disk
		return nil
	}
	fusectl, err := openFusectl()
	if errors.Is(err, os.ErrNotExist) { // the kernel has no FUSE
		return nil
	}
	if err == nil {
		defer fusectl.Close()
		user, listed := serverOf(fusectl, fmt.Sprint(file.Dev_minor))
		if listed && user != 0 && user != os.Geteuid() {
			return ErrServedByUser
		}
		if listed || !anyServer(fusectl) { // the layers of an overlay never change
			return nil
		}
	}
	return checkMount(file.Mnt_id, pid)
}

// checkMount returns ErrServedByUser unless a mount that a process uses is known not to need an
// answer of an ordinary user. An overlay asks its layers with the rights of the user who mounted
// it, and does not show its layers. Ordinary users can mount one in a user namespace.
func checkMount(id uint64, pid int) error {
	own, err := mountsIn("/proc/self")
	if err != nil {
		return err
	}
	m, trusted := own[id]
	if !trusted {
		if m, trusted, err = mountOf(pid, id); err != nil {
			return err
		}
	}
	for _, same := range own { // such as an overlay of a container runtime
		trusted = trusted || same.device == m.device
	}
	if m.kind == "" || strings.HasPrefix(m.kind, "fuse") || m.kind == "overlay" && !trusted {
		return ErrServedByUser
	}
	return nil
}

// mountOf returns a mount that a process sees, and whether only root can have mounted it.
func mountOf(pid int, id uint64) (m mount, byRoot bool, err error) {
	fd, err := unix.Open(ProcDir(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return m, false, err
	}
	defer unix.Close(fd)
	dir := fmt.Sprintf("/proc/self/fd/%d", fd) // another process may get the id
	list, err := mountsIn(dir)
	if err != nil {
		return m, false, err
	}
	// after the list: a process may leave the host's user namespace, but not return
	space, err := os.Stat(dir + "/ns/user")
	if err != nil {
		return m, false, err
	}
	host, err := os.Stat("/proc/self/ns/user")
	return list[id], err == nil && os.SameFile(space, host), err
}

// mount is a mount of a file system.
type mount struct{ device, kind string }

// maxMountBytes bounds what is read of a process's list of mounts.
const maxMountBytes = 4 << 20

// mountsIn reads the mounts in a folder of /proc, by their ids.
func mountsIn(dir string) (map[uint64]mount, error) {
	file, err := os.Open(dir + "/mountinfo")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxMountBytes))
	list := make(map[uint64]mount)
	for line := range strings.Lines(string(text)) {
		// 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
		place, about, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(place), strings.Fields(about)
		if len(fields) < 3 || len(kind) == 0 {
			continue
		}
		if id, err := strconv.ParseUint(fields[0], 10, 64); err == nil {
			list[id] = mount{device: fields[2], kind: kind[0]}
		}
	}
	return list, err
}

// serverOf returns the user who serves the FUSE file system with a device number, wherever it is
// mounted: its folder in fusectl belongs to that user.
func serverOf(fusectl *os.File, minor string) (user int, listed bool) {
	var stat unix.Stat_t
	err := unix.Fstatat(int(fusectl.Fd()), minor, &stat, 0)
	return int(stat.Uid), err == nil
}

// anyServer reports whether an ordinary user serves any FUSE file system of the host. It ends at
// the first one, because a user may have thousands.
func anyServer(fusectl *os.File) bool {
	for {
		names, err := fusectl.Readdirnames(100)
		for _, name := range names {
			if user, listed := serverOf(fusectl, name); listed && user != 0 {
				return true
			}
		}
		if err != nil { // io.EOF, or none can be read
			return !errors.Is(err, io.EOF)
		}
	}
}

// fusectlMagic is FUSE_CTL_SUPER_MAGIC of the kernel's fs/fuse/control.c.
const fusectlMagic = 0x65735543

// openFusectl opens fusectl without mounting it anywhere; without CAP_SYS_ADMIN, where it is
// mounted.
func openFusectl() (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC
	mount, err := mountFusectl()
	if err != nil {
		file, err := os.OpenFile("/sys/fs/fuse/connections", flags, 0)
		var about unix.Statfs_t
		if err == nil && unix.Fstatfs(int(file.Fd()), &about) == nil && about.Type != fusectlMagic {
			file.Close()
			err = errors.New("fusectl is not mounted")
		}
		return file, err
	}
	list, err := unix.Openat(mount, ".", flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(list), "fusectl"), nil
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
