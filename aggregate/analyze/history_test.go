package analyze

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// a historyRun applies events, a microsecond after each other, and keeps the last note.
type historyRun struct {
	*History
	now  uint64
	note Note
}

func newHistoryRun() *historyRun { return &historyRun{History: NewHistory()} }

func (r *historyRun) apply(e event.Event) {
	r.now += 1000
	e.TimeNs = r.now
	r.Apply(&e, func(_ *event.Event, n *Note) { r.note = *n })
}

func (r *historyRun) alloc(pid int, id, address, perBank uint64, devices ...int) {
	r.apply(event.Event{
		Kind: event.Alloc, PID: pid, BufferID: id, Allocator: 1, Devices: devices, Region: event.DRAM,
		Address: address, SizeBytes: perBank * 2, BytesPerBank: perBank, Banks: 2,
	})
}

func (r *historyRun) free(pid int, id uint64) {
	r.apply(event.Event{Kind: event.Free, PID: pid, BufferID: id, Region: event.DRAM, Reason: event.ReasonExplicit})
}

func TestAFreeNamesItsBuffer(t *testing.T) {
	r := newHistoryRun()
	r.alloc(1, 7, 0x1000, 64, 0)
	qt.Check(t, qt.IsNil(r.note.Ended))
	r.free(1, 7)
	qt.Assert(t, qt.IsNotNil(r.note.Ended))
	qt.Check(t, qt.Equals(r.note.Ended.SinceNs, 1000))
	qt.Check(t, qt.IsNil(r.note.Freed))
	qt.Check(t, qt.IsFalse(r.note.Unseen))
}

func TestASecondFreeIsADoubleFree(t *testing.T) {
	r := newHistoryRun()
	r.alloc(1, 7, 0x1000, 64, 0)
	r.free(1, 7)
	r.free(1, 7)
	qt.Assert(t, qt.IsNotNil(r.note.Freed))
	qt.Check(t, qt.Equals(r.note.Freed.EndNs, 2000))
	qt.Check(t, qt.IsFalse(r.note.Unseen))
	qt.Check(t, qt.IsNil(r.note.Ended))
}

func TestAFreeOfAnotherProcessIsNotADoubleFree(t *testing.T) {
	r := newHistoryRun()
	r.alloc(1, 7, 0x1000, 64, 0)
	r.free(1, 7)
	r.free(2, 7)
	qt.Check(t, qt.IsNil(r.note.Freed))
	qt.Check(t, qt.IsTrue(r.note.Unseen))
}

func TestAnIDThatIsUsedAgainMayBeFreedAgain(t *testing.T) {
	r := newHistoryRun()
	for range 2 {
		r.alloc(1, 7, 0x1000, 64, 0)
		r.free(1, 7)
		qt.Check(t, qt.IsNil(r.note.Freed))
	}
}

func TestAnAddressRemembersItsEarlierUseWithAnotherSize(t *testing.T) {
	r := newHistoryRun()
	r.alloc(1, 7, 0x1000, 64, 0)
	r.free(1, 7)
	r.alloc(1, 8, 0x1000, 64, 0)
	qt.Check(t, qt.IsNil(r.note.Earlier), qt.Commentf("the same size"))
	r.free(1, 8)
	r.alloc(2, 1, 0x1000, 32, 1)
	qt.Check(t, qt.IsNil(r.note.Earlier), qt.Commentf("another chip"))
	r.alloc(2, 2, 0x1000, 32, 0)
	qt.Assert(t, qt.IsNotNil(r.note.Earlier))
	qt.Check(t, qt.Equals(*r.note.Earlier, Use{
		PID: 1, BufferID: 8, Address: 0x1000, SizeBytes: 128, BytesPerBank: 64, SinceNs: 3000, EndNs: 4000,
	}))
}

func TestABufferThatIsAllocatedTwiceReplacesTheFirst(t *testing.T) {
	r := newHistoryRun()
	r.alloc(1, 7, 0x1000, 64, 0)
	r.alloc(1, 7, 0x2000, 64, 0)
	qt.Assert(t, qt.IsNotNil(r.note.Replaced))
	qt.Check(t, qt.Equals(r.note.Replaced.Address, 0x1000))
	qt.Check(t, qt.IsNil(r.note.Ended))
}

func TestRecentIsBounded(t *testing.T) {
	r := recent[int, int]{keep: 100}
	for i := range 10000 {
		r.set(i, i+1)
		if len(r.young)+len(r.old) > 200 {
			t.Fatalf("%d are kept", len(r.young)+len(r.old))
		}
		if oldest := max(0, i-99); r.get(oldest) != oldest+1 {
			t.Fatalf("%d is forgotten at %d", oldest, i)
		}
	}
}
