package tracer

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

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
	return file, host.NewMapping{PID: os.Getpid(), Start: uint64(start), End: uint64(start) + 4096, File: id, Name: file.Name()}
}

// A file under a write lease is read when the lease has ended.
func TestLeasedFileIsReadLater(t *testing.T) {
	d := newTestDecoder()
	f := newFinder(nil, d)
	file, m := mapFile(t, "leased.so", 0)
	_, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	qt.Check(t, qt.HasLen(f.waiting.All(), 1))
	qt.Check(t, qt.HasLen(f.inbox.list, 0))
	host.EndLease(file)
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	qt.Check(t, qt.HasLen(f.waiting.All(), 0))
	_, known := f.libraries.Known(&m)
	qt.Check(t, qt.IsTrue(known), qt.Commentf("it is not a library"))
}

// A process may map another file at the address of one whose mapping was reported. What is read
// there says nothing about the first one.
func TestFileMappedInPlaceOfAnother(t *testing.T) {
	d := newTestDecoder()
	f := newFinder(nil, d)
	_, m := mapFile(t, "libtt_metal.so", 0)
	mapFile(t, "other.so", m.Start)
	qt.Check(t, qt.IsNil(f.discover(m, 1)))
	_, known := f.libraries.Known(&m)
	qt.Check(t, qt.IsFalse(known))
	f.inbox.take(d, host.Now())
	qt.Check(t, qt.HasLen(d.lost(), 1))
	qt.Check(t, qt.Equals(d.lost()[loss{os.Getpid(), endedBefore}].n, 1))
}

// A file with the library's name and without section headers is named, not passed over.
func TestLibraryWithoutSectionHeadersIsNamed(t *testing.T) {
	self, err := os.ReadFile("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	clear(self[0x28:0x30]) // e_shoff
	clear(self[0x3a:0x40]) // e_shentsize, e_shnum, e_shstrndx
	d := newTestDecoder()
	f := newFinder(nil, d)
	for name, want := range map[string]error{"libtt_metal.so": layout.ErrNoSections, "other.so": nil} {
		file, m := mapFile(t, name, 0)
		_, err = file.WriteAt(self, 0)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.ErrorIs(f.discover(m, 1), want))
	}
	f.inbox.take(d, host.Now())
	qt.Check(t, qt.Equals(d.lost()[loss{os.Getpid(), notTraced}].n, 1))
}

// A file beside the library that is read when its process has ended costs the process no events.
func TestAFileBesideTheLibraryIsReadLate(t *testing.T) {
	for _, c := range []struct {
		name   string
		ended  int // a process that mapped the library
		losses int
	}{
		{"_ttnn.so", os.Getpid(), 0},
		{"_ttnn.so", 1 << 30, 1},
		{"libtt_metal.so", os.Getpid(), 1},
	} {
		d := newTestDecoder()
		f := newFinder(nil, d)
		_, m := mapFile(t, c.name, 0)
		mapFile(t, "other.so", m.Start)
		p := d.process(c.ended)
		p.library = d.libraries.At(0)
		d.end(p, event.Event{})
		qt.Check(t, qt.IsNil(f.discover(m, 1)))
		f.inbox.take(d, host.Now())
		qt.Check(t, qt.HasLen(d.lost(), c.losses), qt.Commentf("%+v", c))
	}
}
