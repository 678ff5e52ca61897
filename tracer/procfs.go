package tracer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procMap is an executable mapping, as /proc/PID/maps has it.
type procMap struct {
	start, end, offset uint64
	file               fileID // no inode: it is no file's
	path               string // "", or "[vdso]" and the like, where it is no file's
}

// codeMaps are the executable mappings of a process, ascending.
func codeMaps(pid int) ([]procMap, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, err
	}
	if len(text) == 0 { // its first thread has ended
		if text, err = os.ReadFile(procDir(pid) + "/maps"); err != nil {
			return nil, err
		}
	}
	var maps []procMap
	for line := range strings.Lines(string(text)) {
		if m, ok := parseMapsLine(strings.TrimSuffix(line, "\n")); ok {
			maps = append(maps, m)
		}
	}
	return maps, nil
}

// executableMaps are the files that a process maps as code.
func executableMaps(pid int) ([]procMap, error) {
	maps, err := codeMaps(pid)
	return slices.DeleteFunc(maps, func(m procMap) bool { return m.file.inode == 0 }), err
}

// parseMapsLine reads a line such as
//
//	7f0c8a400000-7f0c8b200000 r-xp 00785000 fe:00 525741    /usr/lib/libtt_metal.so (deleted)
//
// and reports false for what is no code.
func parseMapsLine(line string) (procMap, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 || !strings.Contains(fields[1], "x") {
		return procMap{}, false
	}
	return parseMapping(line)
}

// parseMapping reads such a line of any mapping.
func parseMapping(line string) (procMap, bool) {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return procMap{}, false
	}
	from, to, _ := strings.Cut(fields[0], "-")
	major, minor, _ := strings.Cut(fields[3], ":")
	var numbers [6]uint64
	for i, field := range []string{from, to, fields[2], major, minor} {
		n, err := strconv.ParseUint(field, 16, 64)
		if err != nil {
			return procMap{}, false
		}
		numbers[i] = n
	}
	inode, err := strconv.ParseUint(fields[4], 10, 64)
	if err != nil {
		return procMap{}, false
	}
	m := procMap{
		start: numbers[0], end: numbers[1], offset: numbers[2],
		file: fileID{major: uint32(numbers[3]), minor: uint32(numbers[4]), inode: inode},
	}
	// the path is all that follows, blanks included
	if i := strings.IndexByte(line, '/'); i >= 0 {
		m.path = strings.TrimSuffix(line[i:], " (deleted)")
	} else if len(fields) > 5 {
		m.path = fields[5]
	}
	return m, m.end > m.start && m.start < 1<<63 // vsyscall is no code that runs
}

// openMapped opens the very file that a process has mapped there, also when it
// was deleted or replaced, or lies in another mount namespace.
func openMapped(pid int, start, end uint64) (*os.File, error) {
	file := fmt.Sprintf("map_files/%x-%x", start, end)
	f, err := os.Open(fmt.Sprintf("/proc/%d/%s", pid, file))
	if errors.Is(err, unix.ESRCH) {
		if dir := procDir(pid); dir != fmt.Sprintf("/proc/%d", pid) { // its first thread has ended
			return os.Open(dir + "/" + file)
		}
	}
	return f, err
}

// identity is what the maps of a process that maps the file would say of it. On
// overlayfs and btrfs stat(2) says something else, so that the file is mapped to
// find out.
func identity(file *os.File) (fileID, error) {
	mem, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return fileID{}, fmt.Errorf("mapping %s: %w", file.Name(), err)
	}
	defer unix.Munmap(mem)
	at := addressOf(mem)
	text, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return fileID{}, err
	}
	for line := range strings.Lines(string(text)) {
		if m, ok := parseMapping(strings.TrimSuffix(line, "\n")); ok && m.start <= at && at < m.end {
			return m.file, nil
		}
	}
	return fileID{}, fmt.Errorf("mapping %s: not found among the mappings", file.Name())
}

// addressOf is where bytes lie in this process.
func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// readProcess reads memory of a process.
func readProcess(pid int, at uint64, n int) ([]byte, error) {
	mem, err := os.Open(procDir(pid) + "/mem")
	if err != nil {
		return nil, err
	}
	defer mem.Close()
	b := make([]byte, n)
	_, err = mem.ReadAt(b, int64(at))
	return b, err
}

// procDir is the folder of /proc that tells of a process: its own, or, where its
// first thread has ended before the others, that of one of those. The first thread's
// has no mappings, command line or cgroup any more.
func procDir(pid int) string {
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

// isZombie reports whether the thread of a folder of /proc has ended.
func isZombie(dir string) bool {
	text, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return false
	}
	// "PID (name) state": the name may contain anything
	_, state, ok := strings.Cut(string(text[max(0, strings.LastIndexByte(string(text), ')')):]), " ")
	return ok && (strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X"))
}

// ProcessOf is the process that a thread belongs to: itself for a process's id, and
// for one that is not there.
func ProcessOf(tid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", tid))
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if value, ok := strings.CutPrefix(line, "Tgid:"); ok {
				if pid, err := strconv.Atoi(strings.TrimSpace(value)); err == nil {
					return pid
				}
			}
		}
	}
	return tid
}

// isRunning reports whether a process exists.
func isRunning(pid int) bool { return unix.Kill(pid, 0) != unix.ESRCH }

// Ended reports whether a process has ended, or is only waited for. One whose first
// thread has ended goes on as long as it has others.
func Ended(pid int) bool {
	dir := procDir(pid)
	_, err := os.Stat(dir)
	return err != nil || isZombie(dir)
}

// parentOf is the parent of a process, 0 where that is not known.
func parentOf(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "PPid:"); ok {
			parent, _ := strconv.Atoi(strings.TrimSpace(value))
			return parent
		}
	}
	return 0
}

// hasNoMemory reports whether a process has ended, or has come so far in ending that
// nothing of its memory is left.
func hasNoMemory(pid int) bool {
	maps, err := executableMaps(pid)
	return err != nil || len(maps) == 0
}

// mappedPath is the path under which a process sees a mapped file.
func mappedPath(pid int, file fileID) string {
	maps, err := executableMaps(pid)
	if err != nil {
		return ""
	}
	for _, m := range maps {
		file.generation = 0 // which the maps do not tell
		if m.file == file {
			return m.path
		}
	}
	return ""
}

// commandLine is the command line of a process, blanks between its words.
func commandLine(pid int) string {
	text, err := os.ReadFile(procDir(pid) + "/cmdline")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

// threadName is what the kernel calls a thread, or its process where the thread
// has ended; "" where that has too.
func threadName(pid, tid int) string {
	for _, path := range []string{fmt.Sprintf("/proc/%d/task/%d/comm", pid, tid), fmt.Sprintf("/proc/%d/comm", pid)} {
		if text, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}

// cause is what went wrong with a file, without its name.
func cause(err error) error {
	if path := (*os.PathError)(nil); errors.As(err, &path) {
		return path.Err
	}
	return err
}

// processes are the ids of all processes.
func processes() ([]int, error) {
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

// hurry has the calling goroutine go before others on a busy host, as long as it runs:
// what programs do until their library is known, and their code, is not seen as it
// should be. It has little to do.
func hurry() {
	runtime.LockOSThread()
	_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -10) // or it waits its turn
}

// now is CLOCK_MONOTONIC in ns: the events' clock.
func now() uint64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}
