// Package host reads the processes of the host: their mappings and changes of these, users,
// containers, files and memory. It also starts the commands that are traced.
// It is not part of ttmem's Go library: it changes without notice.
package host

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Mapping is a mapping of a process, as /proc/PID/maps has it.
type Mapping struct {
	Start, End, Offset uint64
	File               FileID // without an inode: not backed by a file
	Path               string // "", or "[vdso]" and the like, if not backed by a file
}

// MaxCodeMappings bounds what CodeMappings returns.
const MaxCodeMappings = 4096

// CodeMappings returns the executable mappings of a process, in ascending order, and no more
// than MaxCodeMappings.
func (p *Proc) CodeMappings(pid int) ([]Mapping, error) {
	return p.mappings(pid, MaxCodeMappings, ParseCodeMapping)
}

// DataMappings returns the private writable mappings of a process that may contain objects,
// in ascending order: those without a file, except stacks.
func (p *Proc) DataMappings(pid int) ([]Mapping, error) {
	return p.mappings(pid, math.MaxInt, parseDataMapping)
}

// FileMappings returns the files that a process maps as code.
func (p *Proc) FileMappings(pid int) ([]Mapping, error) {
	return p.mappings(pid, math.MaxInt, func(line string) (Mapping, bool) {
		m, ok := ParseCodeMapping(line)
		return m, ok && m.File.Inode != 0
	})
}

// mappings returns the first mappings of a process that parse accepts. The error is ErrNoAnswer if
// the process's lock does not let them be read.
func (p *Proc) mappings(pid, limit int, parse func(line string) (Mapping, bool)) ([]Mapping, error) {
	return answered(p, pid, func() ([]Mapping, error) {
		maps, any, err := mappingsIn(fmt.Sprintf("/proc/%d", pid), limit, parse)
		if err == nil && !any { // its first thread has ended
			maps, _, err = mappingsIn(ProcDir(pid), limit, parse)
		}
		return maps, err
	})
}

// mappingsIn reads the mappings in a folder of /proc, and reports whether there are any.
func mappingsIn(dir string, limit int, parse func(line string) (Mapping, bool)) (maps []Mapping, any bool, err error) {
	file, err := os.Open(dir + "/maps")
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for len(maps) < limit && lines.Scan() {
		any = true
		if m, ok := parse(lines.Text()); ok {
			maps = append(maps, m)
		}
	}
	return maps, any, lines.Err()
}

// ParseCodeMapping reads a line such as
//
//	7f0c8a400000-7f0c8b200000 r-xp 00785000 fe:00 525741    /usr/lib/libtt_metal.so (deleted)
//
// and reports false if the mapping is not executable.
func ParseCodeMapping(line string) (Mapping, bool) {
	m, permissions, ok := parseMapping(line)
	return m, ok && strings.Contains(permissions, "x")
}

// parseDataMapping parses a line; false for a mapping that DataMappings leaves out.
func parseDataMapping(line string) (Mapping, bool) {
	m, permissions, ok := parseMapping(line)
	return m, ok && m.File.Inode == 0 && strings.HasPrefix(permissions, "rw") && strings.HasSuffix(permissions, "p") &&
		(m.Path == "" || m.Path == "[heap]" || strings.HasPrefix(m.Path, "[anon"))
}

func parseMapping(line string) (m Mapping, permissions string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return m, "", false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	major, minor, _ := strings.Cut(fields[3], ":")
	var numbers [5]uint64
	for i, field := range []string{from, to, fields[2], major, minor} {
		n, err := strconv.ParseUint(field, 16, 64)
		if err != nil {
			return m, "", false
		}
		numbers[i] = n
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	m = Mapping{
		Start: numbers[0], End: numbers[1], Offset: numbers[2],
		File: FileID{Major: uint32(numbers[3]), Minor: uint32(numbers[4]), Inode: inode},
	}
	if len(fields) > 5 {
		m.Path = fields[5]
		if m.Path[0] == '/' { // it is the rest of the line, including blanks
			m.Path = strings.TrimSuffix(line[strings.IndexByte(line, '/'):], " (deleted)")
		}
	}
	return m, fields[1], err == nil && m.End > m.Start && m.Start < 1<<63 // vsyscall is not executed
}

// OpenMapped opens the file that a process has mapped at these addresses, even if it was
// deleted or replaced, or lies in another mount namespace. It does not wait: the error is
// unix.EWOULDBLOCK if there is a lease on the file, ErrServedByUser if an ordinary user may serve its
// file system, and ErrNoAnswer if the process keeps the lock of its address space.
func (p *Proc) OpenMapped(pid int, start, end uint64) (*os.File, error) {
	return answered(p, pid, func() (*os.File, error) { return openMapped(pid, start, end) })
}

// OpenDescriptor opens a file that a process has open, as OpenMapped does, and returns its path.
func (p *Proc) OpenDescriptor(pid, fd int) (file *os.File, path string, err error) {
	name := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	file, err = answered(p, pid, func() (*os.File, error) {
		at, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, &os.PathError{Op: "open", Path: name, Err: err}
		}
		defer unix.Close(at)
		return reopen(at, pid, name)
	})
	if err != nil {
		return nil, "", err
	}
	if path, err = os.Readlink(name); err != nil {
		file.Close()
		return nil, "", err
	}
	return file, path, nil
}

func openMapped(pid int, start, end uint64) (*os.File, error) {
	own := fmt.Sprintf("/proc/%d", pid)
	file := fmt.Sprintf("/map_files/%x-%x", start, end)
	fd, err := unix.Open(own+file, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err == unix.ESRCH {
		if dir := ProcDir(pid); dir != own { // its first thread has ended
			fd, err = unix.Open(dir+file, unix.O_PATH|unix.O_CLOEXEC, 0)
		}
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: own + file, Err: err}
	}
	defer unix.Close(fd)
	return reopen(fd, pid, own+file)
}

// FileIDOf returns the identity that /proc/PID/maps shows for a file. On overlayfs and
// btrfs stat(2) differs from it, so the file is mapped to find out.
func FileIDOf(file *os.File) (FileID, error) {
	mem, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return FileID{}, fmt.Errorf("mapping %s: %w", file.Name(), err)
	}
	defer unix.Munmap(mem)
	at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	maps, _, err := mappingsIn("/proc/self", 1, func(line string) (Mapping, bool) {
		m, _, ok := parseMapping(line)
		return m, ok && m.Start <= at && at < m.End
	})
	if err != nil {
		return FileID{}, err
	}
	if len(maps) == 0 {
		return FileID{}, fmt.Errorf("mapping %s: not found among the mappings", file.Name())
	}
	return maps[0].File, nil
}

// ReadMemory reads memory of a process.
func (p *Proc) ReadMemory(pid int, at uint64, n int) ([]byte, error) {
	return p.readAt(pid, "/mem", at, n)
}

// UsedPages reads the entries of /proc/PID/pagemap for a number of pages: 8 bytes for each. It
// returns fewer at the end of the address space, and none if the process has ended.
func (p *Proc) UsedPages(pid int, from uint64, pages int) ([]byte, error) {
	return p.readAt(pid, "/pagemap", from/uint64(os.Getpagesize())*8, pages*8)
}

// readAt reads n bytes of a file of a process, or fewer at its end.
func (p *Proc) readAt(pid int, name string, at uint64, n int) ([]byte, error) {
	return answered(p, pid, func() ([]byte, error) {
		file, err := os.Open(ProcDir(pid) + name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		b := make([]byte, n)
		n, err := file.ReadAt(b, int64(at))
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return b[:n], err
	})
}

// ProcDir returns the folder of /proc that describes a process: its own or, if its first
// thread has ended before the others, that of another thread. The first thread's folder
// then has no mappings, command line or cgroup.
func ProcDir(pid int) string {
	own := fmt.Sprintf("/proc/%d", pid)
	if !isZombie(own) {
		return own
	}
	threads, err := os.ReadDir(own + "/task")
	if err != nil {
		return own
	}
	for _, thread := range threads {
		if dir := "/proc/" + thread.Name(); !isZombie(dir) {
			return dir
		}
	}
	return own
}

// isZombie reports whether the thread of a folder in /proc has ended.
func isZombie(dir string) bool {
	text, err := os.ReadFile(dir + "/stat")
	return err == nil && hasEnded(string(text))
}

// hasEnded reports whether a /proc/PID/stat says that the thread has ended.
func hasEnded(text string) bool {
	// "PID (name) state": the name may contain anything
	_, state, ok := strings.Cut(text[max(0, strings.LastIndexByte(text, ')')):], " ")
	return ok && (strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X"))
}

// BeganAfter reports whether a process began after a time of Now: then it is not the one that had its id at that time. It
// is false if the process has ended or began within the same tick, of 10 ms, and if the time is 0: not known.
func BeganAfter(pid int, timeNs uint64) bool {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	began, ok := beginningOf(string(text))
	now := Now() // before the other clock: a process must not seem to be younger than it is
	return ok && timeNs != 0 && int64(now)-clock(unix.CLOCK_BOOTTIME)+began > int64(timeNs)
}

// beginningOf returns CLOCK_BOOTTIME at which the process of a /proc/PID/stat began, rounded down to a tick.
func beginningOf(text string) (ns int64, ok bool) {
	const field, ticksPerSecond = 22 - 2, 100 // of the fields after the name; USER_HZ
	fields := strings.Fields(text[max(0, strings.LastIndexByte(text, ')')):])
	if len(fields) <= field {
		return 0, false
	}
	ticks, err := strconv.ParseInt(fields[field], 10, 64)
	return ticks * (1e9 / ticksPerSecond), err == nil && ticks >= 0 && ticks < math.MaxInt64/int64(1e9)
}

// statusOf returns the values of a field in a /proc/PID/status.
func statusOf(text, name string) []string {
	for line := range strings.Lines(text) {
		if values, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(values)
		}
	}
	return nil
}

// statusNumber returns a number from /proc/PID/status; 0 if it cannot be read.
func statusNumber(pid int, name string) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	n, _ := strconv.Atoi(strings.Join(statusOf(string(text), name), " "))
	return n
}

// ResidentMemory returns the memory of a process on the host, and the most that it was since its program
// began. It does not wait for the lock of the address space; ok is false if the process has ended.
func ResidentMemory(pid int) (now, most uint64, ok bool) {
	text, _ := os.ReadFile(ProcDir(pid) + "/status")
	now, is := kilobytesOf(string(text), "VmRSS")
	most, was := kilobytesOf(string(text), "VmHWM")
	return now, most, is && was
}

// kilobytesOf returns the bytes of a field in kB of a /proc/PID/status.
func kilobytesOf(text, name string) (bytes uint64, ok bool) {
	values := statusOf(text, name)
	if len(values) != 2 || values[1] != "kB" {
		return 0, false
	}
	n, err := strconv.ParseUint(values[0], 10, 54)
	return n << 10, err == nil
}

// ProcessOf returns the process of a thread. It returns the id itself for a process, and
// for a thread that does not exist.
func ProcessOf(tid int) int { return cmp.Or(statusNumber(tid, "Tgid"), tid) }

// RealUser returns the user to whom a process counts: the one that started it, even if it executes a
// setuid program. In a user namespace that is the owner of the outermost one, because a user may have
// thousands of ids there, or a number for that namespace if root made it. It is -1 if the process has
// ended.
func RealUser(pid int) int {
	uid, owner, inside := realUser(pid)
	if inside {
		return owner
	}
	return uid
}

// namespaceOfRoot is added to the number of a namespace that root made: no user has such an id.
const namespaceOfRoot = 1 << 33

// realUser returns the real user id of a process and, if it is in a user namespace below that of this
// process, the owner of the outermost one.
func realUser(pid int) (uid, owner int, inside bool) {
	uid = -1
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if ids := statusOf(string(text), "Uid"); len(ids) > 0 { // real, effective, saved, of the file system
		if id, err := strconv.Atoi(ids[0]); err == nil {
			uid = id
		}
	}
	own, err := os.Stat("/proc/self/ns/user")
	path := fmt.Sprintf("/proc/%d/ns/user", pid)
	other, otherErr := os.Stat(path)
	if err != nil || otherErr != nil || os.SameFile(own, other) {
		return uid, 0, false
	}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	for err == nil {
		var stat unix.Stat_t
		if err = unix.Fstat(fd, &stat); err != nil {
			break
		}
		if id, ownerErr := unix.IoctlGetUint32(fd, unix.NS_GET_OWNER_UID); ownerErr == nil {
			owner, inside = int(id), true
		}
		if inside && owner == 0 {
			owner = namespaceOfRoot + int(stat.Ino)
		}
		parent, parentErr := unix.IoctlRetInt(fd, unix.NS_GET_PARENT)
		unix.Close(fd)
		if fd, err = parent, parentErr; err != nil {
			return uid, owner, inside // EPERM: there is none
		}
		if err = unix.Fstat(fd, &stat); err != nil || stat.Ino == own.Sys().(*syscall.Stat_t).Ino {
			unix.Close(fd)
			break
		}
	}
	return uid, owner, inside
}

// UserOfClient returns to whom a client of a socket counts, whose process and user id the kernel has: as
// RealUser does, or NoProcess if that process has ended or is another one by now.
func UserOfClient(pid, uid int) int {
	real, owner, inside := realUser(pid)
	switch {
	case real < 0:
		return NoProcess
	case inside:
		return owner
	}
	return uid
}

// NoProcess is the user of clients whose process has ended: all count as one, because anybody can end a
// process that has connected.
const NoProcess = -1

// NoUser is the user of messages that are about no user's processes or files.
const NoUser = -2

// Sharer returns the key under which a process's resources are counted: its user or, because root's
// containers run programs of many users, each process of root alone.
func Sharer(user, pid int) int {
	if user == 0 {
		return -pid
	}
	return user
}

// Parent returns the parent of a process; 0 if unknown.
func Parent(pid int) int { return statusNumber(pid, "PPid") }

// DebuggerOf returns the process that debugs a process; 0 if there is none.
func DebuggerOf(pid int) int { return statusNumber(pid, "TracerPid") }

// Ended reports whether a process has ended, even if its parent has not waited for it. A
// process whose first thread has ended runs as long as it has others.
func Ended(pid int) bool {
	dir := ProcDir(pid)
	_, err := os.Stat(dir)
	return err != nil || isZombie(dir)
}

// AwaitEnd waits for the end of a process.
func AwaitEnd(pid int) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	for {
		if _, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1); err != unix.EINTR {
			return
		}
	}
}

// HasNoMemory reports whether a process has ended, or has released its memory on the way
// there.
func (p *Proc) HasNoMemory(pid int) bool {
	maps, err := p.FileMappings(pid)
	return len(maps) == 0 && !errors.Is(err, ErrNoAnswer)
}

// MappedPath returns the path under which a process sees a mapped file.
func (p *Proc) MappedPath(pid int, file FileID) string {
	file.Generation = 0 // /proc/PID/maps does not have it
	maps, _ := p.FileMappings(pid)
	for _, m := range maps {
		if m.File == file {
			return m.Path
		}
	}
	return ""
}

// ThreadName returns the name of a thread; that of its process if the thread has ended; ""
// if both have.
func ThreadName(pid, tid int) string {
	for _, path := range []string{fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid), fmt.Sprintf("/proc/%d/comm", pid)} {
		if text, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}

// WithoutPath removes the names of files and of the system call from an error.
func WithoutPath(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	if link := (*os.LinkError)(nil); errors.As(err, &link) {
		return link.Err
	}
	return err
}

// PIDs returns the ids of all processes.
func PIDs() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// RaisedNiceness is the niceness that RaisePriority sets, with CAP_SYS_NICE or RLIMIT_NICE. A thread gets three times the
// share of others. Ten times as much (-10) is no better for the first stacks of programs, and at load 40 the threads of
// Linux 6.18 itself were more often late by seconds.
const RaisedNiceness = -5

// RaisePriority lets this process run before others on a busy host until restore is called. Until a program's library
// and code are known, its events are missed or incomplete, and events that are not read in time are lost. All threads
// are raised: one that waits for a processor may hold a lock, or keep Go's garbage collector from stopping the others.
func RaisePriority() (restore func()) {
	was := niceness(unix.Gettid())
	if was <= RaisedNiceness {
		return func() {}
	}
	setNiceness(RaisedNiceness)
	return func() { setNiceness(was) }
}

func niceness(thread int) int {
	rank, _ := unix.Getpriority(unix.PRIO_PROCESS, thread) // 1 to 40; on failure 0
	return 20 - rank
}

// setNiceness sets the niceness of all threads, as far as that is permitted. New ones have that of another one.
func setNiceness(to int) {
	for changed := true; changed; { // until no thread has begun meanwhile
		changed = false
		threads, _ := os.ReadDir("/proc/self/task")
		for _, t := range threads {
			id, _ := strconv.Atoi(t.Name())
			if niceness(id) != to && unix.Setpriority(unix.PRIO_PROCESS, id, to) == nil {
				changed = true
			}
		}
	}
}

// WithoutPriority calls a function on a thread whose priority is not raised.
func WithoutPriority(f func()) {
	runtime.LockOSThread()
	thread := unix.Gettid()
	was := niceness(thread)
	_ = unix.Setpriority(unix.PRIO_PROCESS, thread, max(0, was))
	f()
	if unix.Setpriority(unix.PRIO_PROCESS, thread, was) == nil {
		runtime.UnlockOSThread() // else the thread ends with the goroutine
	}
}

// A ThreadTime is how long a thread ran, and how long it waited for a processor.
type ThreadTime struct{ Ran, Waited time.Duration }

// TimeOfThread returns the time of the calling thread. Waited is 0 if the kernel does not count it.
func TimeOfThread() (t ThreadTime) {
	t.Ran = RanOfThread()
	text, _ := os.ReadFile("/proc/thread-self/schedstat") // its own count of t.Ran is that of the last tick
	_, _ = fmt.Sscan(string(text), new(int64), &t.Waited)
	return t
}

// RanOfThread returns how long the calling thread ran.
func RanOfThread() time.Duration { return time.Duration(clock(unix.CLOCK_THREAD_CPUTIME_ID)) }

// KernelRelease returns the release of the running kernel, such as "6.12.107+deb13-amd64".
func KernelRelease() string {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return unix.ByteSliceToString(u.Release[:])
}
