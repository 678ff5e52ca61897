package service

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// past is what the hub has recorded of the viewer.
func past(t *testing.T, h *Hub, v Viewer) []event.Event {
	t.Helper()
	all, err := h.Past(context.Background(), v, math.MaxUint64)
	qt.Assert(t, qt.IsNil(err))
	var b bytes.Buffer
	_, err = all.Data.WriteTo(&b)
	qt.Assert(t, qt.IsNil(err))
	return read(t, b.Bytes())
}

// A tape has of each viewer what the viewer sees: the state at its beginning, and all events after it.
func TestATapeShowsWhatItsViewerSees(t *testing.T) {
	h := newHost()
	users := []int{0, 1000, 2000}
	for round := range 3 {
		for i, uid := range users {
			pid := 10*round + i + 1
			h.start(pid, uid)
			h.churn(pid, uid, 200)
			h.apply(event.Event{Kind: event.Mark, UID: uid, Cause: "mark"})
			if round < 2 {
				h.apply(event.Event{Kind: event.ProcessExit, PID: pid, TID: pid})
				h.held[pid] = nil
			}
		}
	}
	h.alloc(99, 3000) // of no known user: root sees it only
	for _, v := range []Viewer{root, {UID: 1000}, {UID: 2000}} {
		got := past(t, h.hub, v)
		recorded, now := stateAfter(got), h.shown(v)
		qt.Check(t, qt.Equals(asJSON(recorded.Processes), asJSON(now.Processes)), qt.Commentf("%+v", v))
		marks := 0
		for _, e := range got {
			if e.Kind == event.Mark {
				marks++
			}
		}
		text := ""
		qt.Check(t, qt.Equals(got[0].Kind == event.Checkpoint, !v.All)) // before, there was nothing
		if state := got[0].State; state != nil {
			text, got = string(state.Data)+asJSON(state.Stacks), got[1:]
		}
		text += asJSON(jsonLines(got))
		for _, uid := range []int{1000, 2000, 3000} {
			qt.Check(t, qt.Equals(strings.Contains(text, fmt.Sprintf("of_%d", uid)), v.All || v.UID == uid), qt.Commentf("%+v", v))
		}
		qt.Check(t, qt.Equals(marks, map[bool]int{true: 9, false: 3}[v.All]), qt.Commentf("%+v", v))
	}
	_, err := h.hub.Past(context.Background(), Viewer{UID: 3000}, 0)
	qt.Check(t, qt.ErrorMatches(err, "nothing is recorded of user 3000"))
}

// A user who floods loses their own past, and nothing of another user's.
func TestAFloodOfAUserTakesNothingOfOthers(t *testing.T) {
	h := newHost()
	h.hub.tapes = newTapes(h.hub.state, h.hub.users, 64<<10, 256<<10, 16<<10)
	h.start(1, 1000)
	h.start(2, 2000)
	h.churn(1, 1000, 100)
	first := past(t, h.hub, Viewer{UID: 1000})
	for range 400 {
		h.churn(2, 2000, 1000)
		h.hub.Flush()
	}
	h.churn(1, 1000, 100)
	qt.Check(t, qt.HasLen(past(t, h.hub, Viewer{UID: 1000}), len(first)+100))
	flood := past(t, h.hub, Viewer{UID: 2000})
	qt.Check(t, qt.IsTrue(flood[0].TimeNs > h.now/4), qt.Commentf("%d of %d", flood[0].TimeNs, h.now))
	qt.Check(t, qt.IsTrue(past(t, h.hub, root)[0].TimeNs > h.now/4))
}

// The users of a sharer have few tapes, and so have all users; a user whose processes have ended makes room
// for one of the same sharer, or for any other. What ran before a tape begins is in its checkpoint.
func TestAUserWithoutProcessesMakesRoom(t *testing.T) {
	const firstUser, sharer = 1000, 7
	h := newHost()
	run := func(uid, sharer int) {
		h.apply(event.Event{Kind: event.ProcessStart, PID: uid, TID: uid, UID: uid, Count: uint64(sharer)})
		h.alloc(uid, uid)
	}
	end := func(uid int) { h.apply(event.Event{Kind: event.ProcessExit, PID: uid, TID: uid}) }
	recorded := func(uids ...int) {
		t.Helper()
		for uid := firstUser; uid < firstUser+maxTapes+maxTapesPerUser; uid++ {
			_, err := h.hub.Past(context.Background(), Viewer{UID: uid}, 0)
			qt.Check(t, qt.Equals(err == nil, slices.Contains(uids, uid)), qt.Commentf("user %d of %v", uid, uids))
		}
	}
	var all []int
	for uid := firstUser; uid < firstUser+maxTapesPerUser; uid++ {
		run(uid, sharer)
		all = append(all, uid)
	}
	late := firstUser + maxTapesPerUser
	run(late, sharer)
	recorded(all...)
	end(all[2])
	end(all[1])
	h.apply(event.Event{Kind: event.Lost, Count: 1}) // which all see
	h.apply(event.Event{Kind: event.ProcessStart, PID: 1, TID: 1, UID: late, Count: sharer})
	h.alloc(late, late) // of its first process
	all[2] = late       // whose processes ended first
	recorded(all...)
	qt.Check(t, qt.Equals(asJSON(stateAfter(past(t, h.hub, Viewer{UID: late})).Processes), asJSON(h.shown(Viewer{UID: late}).Processes)))

	next := late + 1
	for ; len(all) < maxTapes; next++ {
		run(next, next)
		all = append(all, next)
	}
	run(next, next)
	all[1] = next
	recorded(all...)
	run(next+1, next+1) // there is no user without processes
	recorded(all...)
}
