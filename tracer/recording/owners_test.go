package recording

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// withOwners puts a run of Owners after every so many events.
func withOwners(events []event.Event, every int) (all []event.Event) {
	for i := range events {
		all = append(all, events[i])
		if i%every != every-1 {
			continue
		}
		for id := range uint64(3) {
			all = append(all, event.Event{
				Kind: event.Owner, TimeNs: events[i].TimeNs, PID: 7, TID: 7, BufferID: id, Object: 0x1000 + id, Count: 1,
				Cause: fmt.Sprintf("model.layers[%d].w%d", i, id), Message: "bf16[1,32] TILE",
			})
		}
	}
	return all
}

func ownersFrom(t testing.TB, r *FileReader, ns uint64) (list []event.Event) {
	t.Helper()
	qt.Assert(t, qt.IsNil(r.Owners(ns, func(e *event.Event) { list = append(list, *e) })))
	return list
}

// TestOwnersAreReadAlone: they are found without the events before and between them, also while these
// are being read.
func TestOwnersAreReadAlone(t *testing.T) {
	const every = 100
	events := withOwners(model(2000, newStacks(30)), every)
	recorded, _ := withSections(t, events, 500)
	path := filepath.Join(t.TempDir(), "x")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, recorded, 0o600)))
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	var want, got []event.Event
	for _, e := range events {
		if e.Kind == event.Owner {
			want = append(want, e)
		}
	}
	equal(t, ownersFrom(t, r, 0), want)
	bytes := int64(0)
	for _, b := range r.owners {
		bytes += b.size
	}
	qt.Check(t, qt.IsTrue(bytes < int64(len(recorded))/10), qt.Commentf("%d of %d bytes", bytes, len(recorded)))
	half := want[len(want)/2].TimeNs
	equal(t, ownersFrom(t, r, half), slices.DeleteFunc(slices.Clone(want), func(e event.Event) bool { return e.TimeNs < half }))
	qt.Check(t, qt.HasLen(ownersFrom(t, r, want[len(want)-1].TimeNs+1), 0))
	for e := new(event.Event); r.Next(e) == nil; {
		if got = append(got, *e); len(got)%500 == 0 {
			qt.Check(t, qt.HasLen(ownersFrom(t, r, 0), len(want)))
		}
	}
	equal(t, got, events)
}

// TestOwnersDoNotKeepCheckpointsAway: a writer that flushes only when the file is full makes them,
// although blocks end where Owners begin and so are never full, and makes no other blocks.
func TestOwnersDoNotKeepCheckpointsAway(t *testing.T) {
	events := withOwners(model(2000, newStacks(30)), 100)
	path, added := filepath.Join(t.TempDir(), "x"), 0
	f, err := Create(path, FileOptions{Checkpoint: counting(events, &added), CheckpointEvents: 500})
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		f.Add(&events[i])
		if added = i + 1; f.Full() {
			qt.Assert(t, qt.IsNil(f.Flush()))
			qt.Assert(t, qt.IsNil(f.Settle()))
		}
	}
	qt.Assert(t, qt.IsNil(f.Close(End{})))
	recorded, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	n, err := readLast(t, recorded, events)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(n > 1000), qt.Commentf("%d events before the last checkpoint", n))
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	blocks := 0
	for _, h := range blockHeads(r.file, r.first, r.size) {
		if h.kind == blockEvents {
			blocks++
		}
	}
	// 20 of Owners and 20 of others, and one more for each checkpoint
	qt.Check(t, qt.IsTrue(blocks <= 45), qt.Commentf("%d blocks", blocks))
}

// TestDamageAmongOwners: those before it are read.
func TestDamageAmongOwners(t *testing.T) {
	events := withOwners(model(300, newStacks(3)), 100)
	path := filepath.Join(t.TempDir(), "x")
	recorded := write(t, events)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, recorded, 0o600)))
	r, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	r.index()
	qt.Assert(t, qt.HasLen(r.owners, 3))
	recorded[r.owners[1].at+blockHead+1] ^= 1
	qt.Assert(t, qt.IsNil(os.WriteFile(path, recorded, 0o600)))
	n := 0
	err = r.Owners(0, func(*event.Event) { n++ })
	qt.Check(t, qt.ErrorAs(err, new(*DamagedError)))
	qt.Check(t, qt.Equals(n, 3))
}
