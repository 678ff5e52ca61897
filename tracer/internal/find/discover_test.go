package find

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
)

// testKernel is a kernel side that lists all processes.
type testKernel struct{}

func (testKernel) ExecID(int) (uint64, error) { return 1, nil }
func (testKernel) AddProcess(pid int, _ uint32) (kernel.Program, error) {
	return kernel.Program{PID: pid, ExecID: 1}, nil
}
func (testKernel) Lists(int) bool { return true }
func (testKernel) Listed() []int  { return nil }

// losses is an Inbox that keeps losses.
type losses []*Loss

func (*losses) Discovered(*Discovery) {}
func (l *losses) Lost(one *Loss)      { *l = append(*l, one) }

// newTestFinder returns a Finder, and what it reports as lost.
func newTestFinder(t *testing.T) (*Finder, *losses) {
	lost := new(losses)
	warn := func(int, string) {}
	readers := new(host.Readers)
	return New(t.Context(), Options{
		Warn: warn, Kernel: testKernel{}, Readers: readers, Inbox: lost, Libraries: libraries.New(nil, nil, &readers.Proc, warn),
	}), lost
}

// mapFile maps a new file as code, at an address or anywhere, and returns its mapping.
func mapFile(t *testing.T, name string, at uint64) (*os.File, host.NewMapping) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), name), os.O_RDWR|os.O_CREATE, 0o700)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	qt.Assert(t, qt.IsNil(file.Truncate(4096)))
	flags := unix.MAP_PRIVATE
	if at != 0 {
		flags |= unix.MAP_FIXED
	}
	start, _, errno := unix.Syscall6(unix.SYS_MMAP, uintptr(at), 4096, unix.PROT_READ|unix.PROT_EXEC, uintptr(flags), file.Fd(), 0)
	qt.Assert(t, qt.Equals(errno, 0))
	t.Cleanup(func() { unix.Syscall(unix.SYS_MUNMAP, start, 4096, 0) })
	id, err := host.FileIDOf(file)
	qt.Assert(t, qt.IsNil(err))
	return file, host.NewMapping{PID: os.Getpid(), TimeNs: host.Now(), Mapping: host.Mapping{Start: uint64(start), End: uint64(start) + 4096, File: id, Path: file.Name()}}
}

// A file under a write lease is read when the lease has ended.
func TestLeasedFileIsReadLater(t *testing.T) {
	f, lost := newTestFinder(t)
	file, m := mapFile(t, "leased.so", 0)
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	qt.Check(t, qt.HasLen(f.waiting.All(), 1))
	qt.Check(t, qt.HasLen(*lost, 0))
	host.EndLease(file)
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	qt.Check(t, qt.HasLen(f.waiting.All(), 0))
	_, known := f.Libraries.Known(&m.Mapping)
	qt.Check(t, qt.IsTrue(known), qt.Commentf("it is not a library"))
}

// A process may map another file at the address of one whose mapping was reported. What is read
// there says nothing about the first one.
func TestFileMappedInPlaceOfAnother(t *testing.T) {
	f, lost := newTestFinder(t)
	_, m := mapFile(t, "libtt_metal.so", 0)
	mapFile(t, "other.so", m.Start)
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	_, known := f.Libraries.Known(&m.Mapping)
	qt.Check(t, qt.IsFalse(known))
	qt.Assert(t, qt.HasLen(*lost, 1))
	qt.Check(t, qt.Equals((*lost)[0].PID, os.Getpid()))
	qt.Check(t, qt.Equals((*lost)[0].Cause, EndedBefore))
	qt.Check(t, qt.IsFalse((*lost)[0].Beside))
}

// A process may have the id of one that made a mapping and has ended. The losses of that one are not its own, and it does
// not map that one's library.
func TestProcessWithTheIDOfAnother(t *testing.T) {
	f, lost := newTestFinder(t)
	_, m := mapFile(t, "libtt_metal.so", 0)
	mapFile(t, "other.so", m.Start)
	m.TimeNs = 1 // long before this process began
	f.reportMissed(m, 1, unix.EACCES)
	f.notTraced(m, 1, unix.EACCES)
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	l := new(libraries.Library)
	l.AttachedNs.Store(host.Now()) // late
	qt.Check(t, qt.IsTrue(f.attached(l, m, 1, false)))
	qt.Check(t, qt.HasLen(*lost, 0))
	qt.Check(t, qt.IsFalse(f.maps(m.PID)))

	read := Describe(m.PID, m.TimeNs)
	qt.Check(t, qt.Equals(read.User, -1))
	qt.Check(t, qt.Equals(read.Start.Comm, ""))
	qt.Check(t, qt.Not(qt.Equals(Describe(m.PID, host.Now()).Start.Comm, "")))
}

// A file that contains tt-metal without a symbol is named, whatever its name is. Others are passed over.
func TestStrippedLibraryIsNamed(t *testing.T) {
	path, err := rig.Library(t.Context(), "0.81.1")
	qt.Assert(t, qt.IsNil(err))
	library, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	self, err := os.ReadFile("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	stripped := tracetest.Stripped(t, library, func(string) bool { return false })
	f, lost := newTestFinder(t)
	for name, c := range map[string]struct {
		content []byte
		want    error
	}{
		"plugin.so": {stripped, layout.ErrStripped}, "unsectioned.so": {tracetest.Unsectioned(stripped), layout.ErrStripped},
		"libtt_metal.so": {self, nil}, "other.so": {tracetest.Unsectioned(self), nil},
	} {
		*lost = nil
		file, m := mapFile(t, name, 0)
		_, err = file.WriteAt(c.content, 0)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.ErrorIs(f.discover(m, 1), c.want))
		if c.want == nil {
			qt.Check(t, qt.HasLen(*lost, 0))
			continue
		}
		qt.Assert(t, qt.HasLen(*lost, 1))
		qt.Check(t, qt.Equals((*lost)[0].Cause, NotTraced))
		qt.Check(t, qt.StringContains((*lost)[0].Warning, fmt.Sprintf("%s in process %d could not be traced: it contains tt-metal", file.Name(), m.PID)))
	}
}

// TestFileOfAProcessThatEnded: under a command, what ended before its file was read is a loss if the file is a library, or is gone
// and may have been one. Of others, the name decides.
func TestFileOfAProcessThatEnded(t *testing.T) {
	path, err := rig.Library(t.Context(), "0.81.1")
	qt.Assert(t, qt.IsNil(err))
	library, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	none := make([]byte, 2*leastCode)
	replaceBy := func(replace func(old, path string) error) func(string) error {
		return func(path string) error {
			if err := os.Rename(path, path+".moved"); err != nil {
				return err
			}
			return replace(path+".moved", path)
		}
	}
	for _, c := range []struct {
		what, name string
		content    []byte
		change     func(path string) error
		lives      bool   // the kernel side lists it: it only unmapped the file
		of         string // the loss under a command; "": none
		ofOthers   string // when all processes are traced
	}{
		{what: "library", name: "plugin.so", content: library, of: EndedBefore},
		{what: "none", name: "plugin.so", content: none},
		{what: "deleted", name: "plugin.so", content: library, change: os.Remove, of: EndedUnread},
		{what: "deleted, small", name: "plugin.so", content: none[:leastCode/2], change: os.Remove},
		{what: "deleted, of a process that lives", name: "plugin.so", content: library, change: os.Remove, lives: true},
		{what: "replaced by a link", name: "plugin.so", content: library, change: replaceBy(os.Symlink)},
		{what: "replaced", name: "plugin.so", content: library, change: replaceBy(func(_, path string) error { return os.WriteFile(path, library, 0o700) })},
		{what: "named so, and none", name: "ttnn_helper", content: none, ofOthers: EndedBefore},
		{what: "named so, and deleted", name: "libtt_metal.so", content: none, change: os.Remove, of: EndedBefore, ofOthers: EndedBefore},
	} {
		for _, isCommand := range []bool{false, true} {
			f, lost := newTestFinder(t)
			child := exec.Command("true")
			qt.Assert(t, qt.IsNil(child.Run()))
			want := c.ofOthers
			if isCommand {
				f.Processes, want = []int{child.Process.Pid}, c.of
			}
			if !c.lives {
				f.Kernel = noKernel{}
			}
			file, m := mapFile(t, c.name, 0)
			_, err := file.WriteAt(c.content, 0)
			qt.Assert(t, qt.IsNil(err))
			if c.change != nil {
				qt.Assert(t, qt.IsNil(c.change(file.Name())))
			}
			m.PID, m.End = child.Process.Pid, m.Start+uint64(len(c.content))
			qt.Check(t, qt.IsNil(f.discover(m, 1)))
			comment := qt.Commentf("%s, under a command: %v", c.what, isCommand)
			if want == "" {
				qt.Check(t, qt.HasLen(*lost, 0), comment)
				continue
			}
			qt.Assert(t, qt.HasLen(*lost, 1), comment)
			qt.Check(t, qt.Equals((*lost)[0].Cause, want), comment)
			qt.Check(t, qt.Equals((*lost)[0].Warning, ""), comment)
			qt.Check(t, qt.Equals((*lost)[0].Beside, c.name != "libtt_metal.so"), comment)
			qt.Check(t, qt.Equals(f.Libraries.Seen.Load(), c.what == "library"), comment)
		}
	}
}

// noProbes replaces the probes of a library that no process runs.
type noProbes struct{}

func (noProbes) Close() error { return nil }

// TestKnownLibrariesAreHandledFirst: their processes may end while other files are read.
func TestKnownLibrariesAreHandledFirst(t *testing.T) {
	f, _ := newTestFinder(t)
	mapping := func(inode uint64) host.NewMapping {
		return host.NewMapping{PID: int(inode), Mapping: host.Mapping{File: host.FileID{Inode: inode}}}
	}
	f.Libraries.Remember(mapping(2).File, &libraries.Library{ProbedFile: kernel.ProbedFile{Probes: noProbes{}}})
	f.Libraries.Remember(mapping(3).File, nil)
	list := f.knownFirst([]host.NewMapping{mapping(1), mapping(2), mapping(3), mapping(2)})
	qt.Check(t, qt.DeepEquals(list, []host.NewMapping{mapping(2), mapping(2), mapping(1), mapping(3)}))
}

// A client's command is its own child, and of the same user.
func TestOnlyOwnCommandsArePreparedFor(t *testing.T) {
	f, _ := newTestFinder(t)
	child := exec.Command("sleep", "1000")
	qt.Assert(t, qt.IsNil(child.Start()))
	defer child.Wait()
	defer child.Process.Kill()
	other := exec.Command("sleep", "1000")
	other.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	qt.Assert(t, qt.IsNil(other.Start()))
	defer other.Wait()
	defer other.Process.Kill()
	qt.Check(t, qt.IsNil(f.PrepareCommand(t.Context(), child.Process.Pid, os.Getpid(), -1)))
	for _, pid := range []int{os.Getpid(), os.Getppid(), 1, 1 << 30, 0, other.Process.Pid} {
		qt.Check(t, qt.ErrorMatches(f.PrepareCommand(t.Context(), pid, os.Getpid(), -1), `process \d+ is none that you started: permission denied`))
	}
}

// What is still being read of the start is told: a look at existing buffers waits for it, on a busy host too.
func TestScanningUntilAllIsRead(t *testing.T) {
	f, _ := newTestFinder(t)
	read := make(chan struct{})
	f.queues.Do(host.Lane{User: 1}, func() { <-read })
	begun := make(chan struct{})
	go func() {
		f.awaitScan()
		close(begun)
	}()
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, f.Scanning)))
	close(read)
	<-begun
	qt.Check(t, qt.IsFalse(f.Scanning()))
}

// ownKernel lists this process.
type ownKernel struct{ testKernel }

func (ownKernel) Listed() []int { return []int{os.Getpid()} }

// noKernel lists no process any more.
type noKernel struct{ testKernel }

func (noKernel) Lists(int) bool { return false }

// TestMappingsOfAProcessThatEnded: under a command, what a listed process mapped last matters although it has ended, and what others
// map does not, even with its id.
func TestMappingsOfAProcessThatEnded(t *testing.T) {
	f, _ := newTestFinder(t)
	f.Processes = []int{1}
	own := host.NewMapping{PID: os.Getpid(), TimeNs: host.Now()}
	check := func(wantFollows, wantEnded bool) {
		t.Helper()
		follows, ended := f.follows(own)
		qt.Check(t, qt.Equals(follows, wantFollows))
		qt.Check(t, qt.Equals(ended, wantEnded))
	}
	f.Kernel = noKernel{}
	check(false, true)
	f.Kernel = testKernel{}
	check(true, false)
	f.Kernel = noKernel{}
	check(true, true)
	f.listed[own.PID] = 1 // long before this process began: it is another one
	check(false, true)
	own.TimeNs = 2 // but that one made the mapping
	check(true, true)
}

// TestScanningWhatHadNoRoom: mappings for which a queue had no room at the start are read before the start's scan ends, as on a
// host with many processes.
func TestScanningWhatHadNoRoom(t *testing.T) {
	f, _ := newTestFinder(t)
	f.Kernel, f.Processes = ownKernel{}, []int{os.Getpid()}
	_, m := mapFile(t, "plugin.so", 0)
	lane, read := host.Lane{User: host.RealUser(os.Getpid())}, make(chan struct{})
	for f.queues.Do(lane, func() { <-read }) {
	}
	f.rescan() // finds no room
	go f.awaitScan()
	_, known := f.Libraries.Known(&m.Mapping)
	qt.Check(t, qt.IsFalse(known))
	close(read)
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { return !f.Scanning() })))
	_, known = f.Libraries.Known(&m.Mapping)
	qt.Check(t, qt.IsTrue(known))
}

// What the command's processes have mapped and nobody has read when enough was waited for is a loss if it may be a
// library, and counted once.
func TestFinishCountsWhatIsUnread(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes uint64
		runs  bool
		cause string
	}{
		{"libtt_metal.so", 4096, true, NotTraced},
		{"libtt_metal.so", 4096, false, EndedBefore},
		{"plugin.so", leastCode, false, EndedUnread},
		{"plugin.so", leastCode, true, ""},
		{"plugin.so", 4096, false, ""},
	} {
		t.Run(fmt.Sprint(c.name, c.bytes, c.runs), func(t *testing.T) {
			f, lost := newTestFinder(t)
			f.Processes = []int{os.Getpid()}
			if !c.runs {
				f.Kernel = noKernel{}
			}
			file, m := mapFile(t, c.name, 0)
			defer file.Close()
			m.End = m.Start + c.bytes
			goOn := make(chan struct{})
			f.queues.Do(host.Lane{User: os.Getuid()}, func() { <-goOn }) // its files do not answer
			f.discoverSoon(m)
			qt.Check(t, qt.IsFalse(f.Finish(false)))
			qt.Check(t, qt.HasLen(*lost, 0))
			qt.Check(t, qt.IsTrue(f.Finish(true)))
			qt.Check(t, qt.IsTrue(f.Finish(true)))
			var causes []string
			for _, l := range *lost {
				causes = append(causes, l.Cause)
			}
			qt.Check(t, qt.Equals(strings.Join(causes, " "), c.cause))
			close(goOn)
			f.queues.Wait(time.Minute)
		})
	}
}

// What was read is not waited for: a file that is no library, one that has been looked at again later, and one whose
// process has ended.
func TestFinishAfterReading(t *testing.T) {
	for _, change := range []func(*Finder, *host.NewMapping){
		func(*Finder, *host.NewMapping) {},
		func(_ *Finder, m *host.NewMapping) { m.PID = 1 << 30 },
	} {
		f, _ := newTestFinder(t)
		f.Processes = []int{os.Getpid()}
		file, m := mapFile(t, "libtt_metal.so", 0)
		change(f, &m)
		f.discoverSoon(m)
		f.queues.Wait(time.Minute)
		qt.Check(t, qt.IsTrue(f.Finish(false)))
		file.Close()
	}
}
