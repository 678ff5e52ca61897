package record

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// TestServeRecordsAgainWhenThereIsSpace: it reports events that could not be recorded, and the
// file that follows makes the state that the service has.
func TestServeRecordsAgainWhenThereIsSpace(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a disk that is full needs root: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	path, ballast := filepath.Join(dir, "host.ttmem"), filepath.Join(dir, "ballast")
	of := aggregate.New()
	s, err := NewService(Options{Path: path}, of)
	qt.Assert(t, qt.IsNil(err))
	var id uint64
	alloc := func(n int) {
		for range n {
			id++
			e := event.Event{
				TimeNs: id, Kind: event.Alloc, PID: 1, BufferID: id * id, Address: id * id * id, Devices: []int{0}, BytesPerBank: 1 << 10, Banks: 12,
			}
			of.Apply(&e)
			s.Take(&e)
		}
		s.flushed = time.Time{} // as if half a second had passed
		s.Pause()
	}
	alloc(100)
	qt.Check(t, qt.Equals(s.Health(), service.RecordingOK))
	qt.Assert(t, qt.ErrorIs(os.WriteFile(ballast, make([]byte, 2<<20), 0o600), unix.ENOSPC))
	alloc(10_000)
	qt.Check(t, qt.Equals(s.Health(), "no space left"))
	s.tried = time.Time{}
	alloc(10)
	qt.Check(t, qt.Equals(s.Health(), "no space left"))
	qt.Assert(t, qt.IsNil(os.Remove(ballast)))
	s.tried = time.Time{}
	alloc(10)
	qt.Check(t, qt.Equals(s.Health(), service.RecordingOK))
	alloc(10)
	s.End(of.Snapshot())
	qt.Check(t, qt.IsTrue(s.Failed))

	r, err := recording.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	state := aggregate.New()
	for e := (event.Event{}); r.Next(&e) == nil; {
		state.Apply(&e)
	}
	qt.Check(t, qt.Equals(state.Snapshot().Devices[0].Regions.DRAM.Buffers, id))
	qt.Check(t, qt.Equals(state.Snapshot().Lost[recording.MissedCause], 10_000+10+10))
	info, err := os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode(), 0o600))
}

func TestServeSaysOnceWhyItDoesNotRecord(t *testing.T) {
	s, err := NewService(Options{Path: filepath.Join(t.TempDir(), "host.ttmem")}, aggregate.New())
	qt.Assert(t, qt.IsNil(err))
	said := saidBy(t, func() {
		for range 3 {
			s.note(errorOf("no space left"))
		}
		s.note(errorOf("read-only file system"))
		s.note(nil)
		s.note(errorOf("no space left"))
		qt.Check(t, qt.Equals(s.Health(), "no space left"))
	})
	saidBy(t, func() { s.note(errors.New("host.ttmem: another ttmem writes it")) }) // an error without a cause
	qt.Check(t, qt.Equals(s.Health(), "the recording cannot be written"))
	const goesOn = "; tracing goes on, and ttmem tries to record again every 10s\n"
	qt.Check(t, qt.Equals(said, "ttmem: host.ttmem: no space left"+goesOn+
		"ttmem: host.ttmem: read-only file system"+goesOn+"ttmem: host.ttmem: no space left"+goesOn))
}

// errorOf is as those of a recording.
func errorOf(cause string) error { return &wrapped{errors.New(cause)} }

type wrapped struct{ cause error }

func (w *wrapped) Error() string { return "host.ttmem: " + w.cause.Error() }
func (w *wrapped) Unwrap() error { return w.cause }

// saidBy is what the function writes to standard error.
func saidBy(t *testing.T, f func()) string {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	stderr := os.Stderr
	os.Stderr = file
	f()
	os.Stderr = stderr
	text, err := os.ReadFile(file.Name())
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

// BenchmarkRotation begins a file that follows, of a state of 800,000 buffers: for so
// long no event is taken from the kernel.
func BenchmarkRotation(b *testing.B) {
	state := aggregate.New()
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "forward", File: "model.py", Line: 3}})
	r := rand.New(rand.NewPCG(1, 7))
	for id := range uint64(1_200_000) {
		size := 1 + r.Uint64N(41)
		e := event.Event{
			TimeNs: id*5000 + r.Uint64N(5000), Kind: event.Alloc, PID: 7, BufferID: id, Object: 0x7f0000000000 + r.Uint64N(1<<24)*0x1c0,
			Address: r.Uint64N(1<<19) << 11, Devices: []int{0}, Banks: 12, Stack: stack,
			SizeBytes: size << 15, PageSizeBytes: 2048, BytesPerBank: size << 12,
		}
		state.Apply(&e)
		if id%3 == 0 {
			e.Kind, e.BufferID, e.Reason = event.Free, id*7%(id+1), event.ReasonExplicit
			state.Apply(&e)
		}
	}
	live := state.Snapshot().Devices[0].Regions.DRAM.Buffers
	path := filepath.Join(b.TempDir(), "host.ttmem")
	var size int64
	for b.Loop() {
		b.StopTimer()
		f, err := recording.Create(path, recording.FileOptions{
			MaxBytes: 1, Keep: 2, Checkpoint: func() func() *event.Event { return state.Freeze(nil) }, Rotate: true,
		})
		qt.Assert(b, qt.IsNil(err))
		f.Add(&event.Event{Kind: event.Lost, Cause: strings.Repeat("as long as the header ", 50)})
		b.StartTimer()
		qt.Assert(b, qt.IsNil(f.Flush()))
		b.StopTimer()
		qt.Assert(b, qt.HasLen(f.Paths(), 2))
		size = f.Size()
		qt.Assert(b, qt.IsNil(f.Close(recording.End{})))
		b.StartTimer()
	}
	b.ReportMetric(float64(live), "buffers")
	b.ReportMetric(float64(size)/float64(live), "bytes/buffer")
}
