package recording

import (
	"bytes"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// runsOf are runs of 50 programs, in turn. Each uses its own buffers; without a list, it is not known which.
func runsOf(n int, list ...uint32) (events []event.Event) {
	for i := range n {
		e := event.Event{Kind: event.ProgramRun, TimeNs: uint64(i) * 1000, PID: 7, TID: 7, ProgramID: uint64(i % 50), Devices: []int{0}}
		if list != nil {
			e.Uses = new(event.Uses)
			for _, at := range list {
				e.Uses.Arguments = append(e.Uses.Arguments, at+uint32(i%50)<<12)
			}
		}
		events = append(events, e)
	}
	return events
}

// A run that uses the same as the run of its program before takes at most 4 bytes more than one without uses.
func TestRepeatedUsesAreSmall(t *testing.T) {
	bytesOf := func(events []event.Event) int {
		w, err := NewWriter(new(bytes.Buffer), fixed)
		qt.Assert(t, qt.IsNil(err))
		for i := range events {
			w.Add(&events[i])
		}
		return w.rows.length()
	}
	for _, n := range []int{1000, 10_000} {
		first := bytesOf(runsOf(50, 0x100040, 0x160000, 0x164000)) - bytesOf(runsOf(50))
		with, without := bytesOf(runsOf(n, 0x100040, 0x160000, 0x164000)), bytesOf(runsOf(n))
		t.Logf("%d runs: %d bytes with uses, %d without, before compression", n, with, without)
		qt.Check(t, qt.IsTrue(with-without <= first+4*(n-50)))
	}
}

// More different uses than a block has room for.
func TestManyUses(t *testing.T) {
	var events []event.Event
	for i := range maxUses + 100 {
		events = append(events, event.Event{Kind: event.ProgramRun, Uses: &event.Uses{Statics: []uint32{uint32(16 * i)}, Partial: i%2 == 0}})
		events = append(events, event.Event{Kind: event.ProgramRun, Uses: events[i/2*2].Uses})
	}
	equal(t, read(t, write(t, events)), events)
}

// TestManyAddressesOfARun: one definition may be repeated by many runs, so that it has few addresses.
func TestManyAddressesOfARun(t *testing.T) {
	for _, uses := range []event.Uses{{Arguments: make([]uint32, 200_000)}, {Statics: make([]uint32, maxUsed+1)}} {
		events := []event.Event{{Kind: event.ProgramRun, Uses: &uses}, {Kind: event.ProgramRun, Uses: &uses}}
		original := uses
		for _, e := range read(t, write(t, events)) {
			qt.Check(t, qt.HasLen(slices.Concat(e.Uses.Arguments, e.Uses.Statics), maxUsed))
			qt.Check(t, qt.IsTrue(e.Uses.Partial))
		}
		qt.Check(t, qt.DeepEquals(uses, original)) // others use it, too

		written := rows{dictionary: newWriting()}
		definition, partial := 0, false
		written.c.Below(&definition, 1)
		written.c.Bool(&partial)
		for _, list := range [...]*[]uint32{&uses.Arguments, &uses.Statics} {
			codec.List(written.c, list, func(v *uint32) { codec.Number(written.c, v) })
		}
		r := rows{dictionary: newReading(nil)}
		r.c.Data = written.c.Data
		var u *event.Uses
		r.used(&u)
		qt.Check(t, qt.IsTrue(r.c.Bad))
	}
}
