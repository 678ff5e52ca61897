package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/e2e/pagetest"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

var root = Viewer{All: true}

// host makes the events of processes that use device memory, in the order of time.
type host struct {
	hub  *Hub
	now  uint64
	next uint64
	dice *rand.Rand
	held map[int][]event.Event
}

func newHost() *host {
	return &host{
		hub: NewHub(aggregate.New()), dice: rand.New(rand.NewPCG(1, 2)), held: make(map[int][]event.Event),
	}
}

func (h *host) apply(e event.Event) {
	h.now++
	e.TimeNs = h.now
	h.hub.Apply(&e)
}

// shown is what the hub shows the viewer.
func (h *host) shown(v Viewer) *memory.Snapshot {
	s, _ := h.hub.Snapshot(context.Background(), v) // which does not end
	return s
}

// start starts a process of a user, whose strings all have the user's name in them.
func (h *host) start(pid, uid int) {
	h.apply(event.Event{
		Kind: event.ProcessStart, PID: pid, TID: pid, UID: uid, Comm: fmt.Sprintf("comm-of-%d", uid),
		Start: &event.Start{Command: fmt.Sprintf("python secret-of-%d.py", uid), Release: "0.81.1"},
	})
	h.apply(event.Event{
		Kind: event.DeviceOpen, PID: pid, TID: pid, Devices: []int{0}, Allocator: 7,
		Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{event.DRAM: {Banks: 12, BytesPerBank: 1 << 30}}},
	})
}

func (h *host) alloc(pid, uid int) {
	h.next++
	e := event.Event{
		Kind: event.Alloc, PID: pid, TID: pid, Comm: fmt.Sprintf("comm-of-%d", uid), Devices: []int{0},
		Region: event.DRAM, BufferID: h.next, Object: h.next << 8, Allocator: 7, SizeBytes: 1 << 10, PageSizeBytes: 1 << 10,
		BytesPerBank: 1 << 10, Banks: 12, Stack: event.StackOf([]event.Frame{{
			Kind: event.Native, Name: fmt.Sprintf("function_of_%d", uid), Module: fmt.Sprintf("module-of-%d.so", uid),
		}}),
	}
	h.held[pid] = append(h.held[pid], e)
	h.apply(e)
}

func (h *host) free(pid int) {
	if len(h.held[pid]) == 0 {
		return
	}
	i, last := h.dice.IntN(len(h.held[pid])), len(h.held[pid])-1
	e := h.held[pid][i]
	h.held[pid][i] = h.held[pid][last]
	h.held[pid] = h.held[pid][:last]
	e.Kind, e.Reason = event.Free, event.ReasonExplicit
	h.apply(e)
}

func (h *host) fail(pid, uid int) {
	h.apply(event.Event{
		Kind: event.AllocFailed, PID: pid, TID: pid, Comm: fmt.Sprintf("comm-of-%d", uid), Devices: []int{0},
		Region: event.DRAM, Reason: event.ReasonOutOfMemory, SizeBytes: 1 << 40, Message: fmt.Sprintf("message-of-%d", uid),
	})
}

// churn allocates and frees a number of times.
func (h *host) churn(pid, uid, times int) {
	for range times {
		if h.dice.IntN(3) > 0 {
			h.alloc(pid, uid)
		} else {
			h.free(pid)
		}
	}
}

// pipe is a follower's writer, which can be held up.
type pipe struct {
	mu   sync.Mutex
	b    bytes.Buffer
	gate sync.Mutex // held: writes wait
}

func (p *pipe) Write(b []byte) (int, error) {
	p.gate.Lock()
	defer p.gate.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *pipe) bytes() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.b.Bytes())
}

// follow follows the hub until the function that it returns is called, which gives
// why it ended.
func follow(t *testing.T, h *Hub, v Viewer) (*pipe, func() error) {
	t.Helper()
	p := &pipe{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	before := followers(h)
	go func() { done <- h.Follow(ctx, v, p) }()
	t.Cleanup(cancel)
	waitFor(t, func() bool { return followers(h) > before })
	return p, func() error {
		select {
		case err := <-done:
			return err
		case <-time.After(time.Minute):
			cancel()
			return errors.New("it did not end")
		}
	}
}

func followers(h *Hub) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.followers)
}

func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	if !tracetest.Eventually(time.Minute, condition) {
		t.Fatal("waited in vain")
	}
}

// read gives the events of a recording.
func read(t *testing.T, b []byte) []event.Event {
	t.Helper()
	r, err := recording.NewReader(bytes.NewReader(b))
	qt.Assert(t, qt.IsNil(err))
	var events []event.Event
	for {
		var e event.Event
		err := r.Next(&e)
		if errors.Is(err, io.EOF) {
			return events
		}
		qt.Assert(t, qt.IsNil(err))
		events = append(events, e)
	}
}

func stateAfter(events []event.Event) *memory.Snapshot {
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	return s.Snapshot()
}

// present is the state that the hub has now, where its Snapshot may be some
// milliseconds old.
func present(h *Hub) *memory.Snapshot {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.Snapshot()
}

func asJSON(v any) string { return string(document.Append(nil, v, nil)) }

// TestFollowerHasWhatThereWasAndWhatHappens: whenever a follower comes, what it
// reads makes the state that the hub has.
func TestFollowerHasWhatThereWasAndWhatHappens(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	host.start(20, 2000)
	host.churn(10, 1000, 500)
	host.fail(20, 2000)
	first, firstEnd := follow(t, host.hub, root)
	host.churn(20, 2000, 500)
	host.apply(event.Event{Kind: event.ProcessExit, PID: 10, TID: 10, ExitStatus: 9})
	host.churn(20, 2000, 100) // not flushed: the next one finds it in the state
	second, secondEnd := follow(t, host.hub, root)
	host.churn(20, 2000, 500)
	host.apply(event.Event{Kind: event.Lost, Count: 3, Cause: "a test"})
	host.hub.End()
	qt.Assert(t, qt.ErrorIs(firstEnd(), errEnded))
	qt.Assert(t, qt.ErrorIs(secondEnd(), errEnded))

	want := host.shown(root)
	for i, p := range []*pipe{first, second} {
		got := stateAfter(read(t, p.bytes()))
		qt.Check(t, qt.Equals(asJSON(got.Devices), asJSON(want.Devices)), qt.Commentf("follower %d", i))
		qt.Check(t, qt.Equals(asJSON(got.Lost), asJSON(want.Lost)))
		qt.Check(t, qt.Equals(got.FailureCount, want.FailureCount))
		qt.Check(t, qt.Equals(got.Anomalies, want.Anomalies))
	}
}

// TestEventsArriveAlone: an event arrives also if none follows.
func TestEventsArriveAlone(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	p, _ := follow(t, host.hub, root)
	size := 0
	waitFor(t, func() bool { size = len(p.bytes()); return size > 0 })
	for range 5 {
		host.alloc(10, 1000)
		host.hub.Flush()
		waitFor(t, func() bool { return len(p.bytes()) > size })
		size = len(p.bytes())
	}
}

// TestUserSeesNothingOfOthers: no byte that a user gets is of another user's process,
// while the totals of the chips in a snapshot are of all users.
func TestUserSeesNothingOfOthers(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	host.churn(10, 1000, 100)
	host.start(20, 2000)
	host.churn(20, 2000, 100)
	host.fail(20, 2000)
	host.apply(event.Event{Kind: event.Alloc, PID: 30, Comm: "comm-of-nobody-knows", Region: event.DRAM, BufferID: 1})
	p, ended := follow(t, host.hub, Viewer{UID: 1000})
	host.churn(20, 2000, 100)
	host.churn(10, 1000, 100)
	host.fail(10, 1000)
	host.fail(20, 2000)
	// the same id is another user's process from now on
	host.apply(event.Event{Kind: event.ProcessExit, PID: 10, TID: 10, ExitStatus: 0})
	host.start(10, 2000)
	host.churn(10, 2000, 100)
	host.hub.End()
	qt.Assert(t, qt.ErrorIs(ended(), errEnded))

	events := read(t, p.bytes())
	text := string(events[0].State.Data) + asJSON(events[0].State.Stacks) + asJSON(jsonLines(events[1:]))
	qt.Check(t, qt.StringContains(text, "secret-of-1000"))
	qt.Check(t, qt.StringContains(text, "message-of-1000"))
	for _, secret := range []string{"-of-2000", "_of_2000", "nobody-knows"} {
		qt.Check(t, qt.Not(qt.StringContains(text, secret)))
	}
	mine := len(stateAfter(events[:1]).Processes)
	qt.Check(t, qt.Equals(mine, 1))
	for _, e := range events {
		if e.Kind == event.Alloc {
			mine++
		}
	}
	qt.Check(t, qt.IsTrue(mine > 40), qt.Commentf("%d", mine))

	all := host.shown(root)
	for _, v := range []Viewer{{UID: 1000}, {UID: 3000}, Nobody} {
		shown := host.shown(v)
		qt.Check(t, qt.Equals(shown.Devices[0].Regions, all.Devices[0].Regions))
		qt.Check(t, qt.Not(qt.StringContains(asJSON(shown), "of-2000")))
		pagetest.CheckSchema(t, "snapshot", asJSON(shown))
	}
	qt.Check(t, qt.StringContains(asJSON(host.shown(Viewer{UID: 2000})), "secret-of-2000"))
}

func jsonLines(events []event.Event) (lines []string) {
	for i := range events {
		lines = append(lines, string(document.Append(nil, events[i].Record(), nil)))
	}
	return lines
}

// flood has processes allocate and free several times as much as waits for a follower. It waits for those that read.
func (h *host) flood(t *testing.T, readers int, pids ...int) {
	t.Helper()
	for i := range 4 * h.hub.backlog / eventBytes {
		for _, pid := range pids {
			h.alloc(pid, 1000)
			h.free(pid)
		}
		if i%200 == 0 {
			h.hub.Flush()
			time.Sleep(5 * time.Millisecond) // as long as a busy target needs for them
			most, idle := backlog(h.hub)
			qt.Assert(t, qt.IsTrue(most <= h.hub.backlog))
			for ; idle < readers; _, idle = backlog(h.hub) { // on a busy host
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// slowFollower returns a host with the processes 10 and 20 of two users, and a follower of root that does not read until its
// gate is opened.
func slowFollower(t *testing.T, backlog int) (h *host, slow *pipe, end func() error) {
	t.Helper()
	h = newHost()
	h.hub.backlog = backlog
	h.start(10, 1000)
	h.start(20, 2000)
	slow, end = follow(t, h.hub, root)
	waitFor(t, func() bool { return len(slow.bytes()) > 0 })
	slow.gate.Lock()
	return h, slow, end
}

// TestSlowFollowerMissesWhoCausesMost: a follower that does not read loses the events of the user who floods it, and
// has those of others, also when that user's process has ended.
func TestSlowFollowerMissesWhoCausesMost(t *testing.T) {
	host, slow, end := slowFollower(t, 1<<20)
	host.alloc(20, 2000)
	host.flood(t, 0, 10)
	for range 100 { // in batches without any event of the user who causes most
		host.alloc(20, 4000)
		host.hub.Flush()
	}
	host.apply(event.Event{Kind: event.ProcessExit, PID: 10, TID: 10})
	slow.gate.Unlock()
	host.hub.End()
	qt.Check(t, qt.ErrorIs(end(), errEnded))
	events := read(t, slow.bytes())
	got := stateAfter(events)
	var lost, got10 uint64
	for _, e := range events {
		switch {
		case e.Kind == event.Lost:
			qt.Check(t, qt.Equals(e.PID, 10))
			qt.Check(t, qt.Equals(e.Cause, missed))
			lost += e.Count
		case e.PID == 10 && (e.Kind == event.Alloc || e.Kind == event.Free):
			got10++
		}
	}
	qt.Check(t, qt.IsTrue(lost > 1000), qt.Commentf("%d", lost))
	qt.Check(t, qt.Equals(lost+got10, uint64(8*host.hub.backlog/eventBytes)))
	qt.Check(t, qt.Equals(got.LostEvents, lost))
	of := func(s *memory.Snapshot, pid int) memory.Process {
		return s.Processes[slices.IndexFunc(s.Processes, func(p memory.Process) bool { return p.PID == pid })]
	}
	qt.Check(t, qt.Equals(asJSON(of(got, 20)), asJSON(of(host.shown(root), 20))))
	qt.Check(t, qt.IsNotNil(of(got, 10).Exit))
}

// TestSubordinateUsersFloodTogether: the users of a namespace count as the one who made it, and root's processes as one each.
func TestSubordinateUsersFloodTogether(t *testing.T) {
	users, b := newProcessUsers(), newBatch()
	add := func(e event.Event) { b.add(&e, users.userOf(&e)) }
	for pid, start := range map[int]event.Event{1: {UID: 5001, Count: 1000}, 2: {UID: 5002, Count: 1000}, 3: {UID: 2000}, 4: {}, 5: {}} {
		start.Kind, start.PID = event.ProcessStart, pid
		add(start)
		add(event.Event{Kind: event.Free, PID: pid})
	}
	add(event.Event{Kind: event.Mark, UID: 1000, Cause: "a mark of the service"})
	losses := func(of *batch) (pids []int) {
		for _, e := range of.events {
			if e.Kind == event.Lost {
				pids = append(pids, e.PID)
			}
		}
		return pids
	}
	qt.Check(t, qt.DeepEquals(losses(b.without(1000)), []int{1, 2}))
	qt.Check(t, qt.DeepEquals(losses(b.without(2000)), []int{3}))
	qt.Check(t, qt.DeepEquals(losses(b.without(-4)), []int{4}))
	qt.Check(t, qt.Equals(b.without(1000).count(), b.count()))
}

// TestSlowFollowerIsCutOff: a follower that does not read delays neither the tracer
// nor other followers, costs no more than its backlog, and gets an error.
func TestSlowFollowerIsCutOff(t *testing.T) {
	host, slow, slowEnd := slowFollower(t, 4<<20)
	host.alloc(10, 1000)
	fast, fastEnd := follow(t, host.hub, root)
	host.flood(t, 1, 10, 20) // the gate stays closed: who waited for the slow one would do so for ever
	slow.gate.Unlock()
	qt.Check(t, qt.ErrorIs(slowEnd(), errTooSlow))
	events := read(t, slow.bytes())
	last := events[len(events)-1]
	qt.Check(t, qt.Equals(last.Kind, event.Lost))
	qt.Check(t, qt.Equals(last.PID, 0))
	qt.Check(t, qt.IsTrue(last.Count > 1000), qt.Commentf("%d", last.Count))
	qt.Check(t, qt.StringContains(last.Cause, "too slow"))

	host.hub.End()
	qt.Check(t, qt.ErrorIs(fastEnd(), errEnded))
	got := stateAfter(read(t, fast.bytes()))
	qt.Check(t, qt.Equals(asJSON(got.Devices), asJSON(host.shown(root).Devices)))
}

// eventBytes is less than what an event costs.
const eventBytes = 512

// backlog is what the follower has that has most, and the number of those that have nothing.
func backlog(h *Hub) (most, idle int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for f := range h.followers {
		f.mu.Lock()
		most = max(most, f.waiting)
		if f.waiting == 0 {
			idle++
		}
		f.mu.Unlock()
	}
	return most, idle
}

// TestWriterThatFailsEndsFollowing: a follower whose connection breaks is gone.
func TestWriterThatFailsEndsFollowing(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	err := host.hub.Follow(context.Background(), root, brokenWriter{})
	qt.Check(t, qt.ErrorMatches(err, ".*broken.*"))
	qt.Check(t, qt.Equals(followers(host.hub), 0))
	host.hub.End()
	qt.Check(t, qt.ErrorIs(host.hub.Follow(context.Background(), root, io.Discard), errEnded))
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

// TestSnapshotsWhileEventsCome: whoever asks while the tracer works gets a state
// that was there at one time. The race detector looks on.
func TestSnapshotsWhileEventsCome(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	stop := make(chan struct{})
	var asking sync.WaitGroup
	for range 2 {
		asking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				s := host.shown(root)
				dram := s.Devices[0].Regions.DRAM
				if dram.AllocatedBytes != dram.Buffers*12<<10 {
					t.Errorf("%d buffers have %d bytes", dram.Buffers, dram.AllocatedBytes)
				}
				_ = asJSON(host.shown(Viewer{UID: 1000}))
			}
		})
	}
	p, ended := follow(t, host.hub, Viewer{UID: 1000})
	host.churn(10, 1000, 20_000)
	close(stop)
	asking.Wait()
	host.hub.End()
	qt.Check(t, qt.ErrorIs(ended(), errEnded))
	qt.Check(t, qt.IsTrue(strings.Contains(asJSON(stateAfter(read(t, p.bytes())[:1])), "secret-of-1000")))
}

// TestClientsShareTheTimeOfTheTracer: states and snapshots together make it wait for a tenth of
// the time at most.
func TestClientsShareTheTimeOfTheTracer(t *testing.T) {
	const took = 20 * time.Millisecond
	for name, ask := range map[string]func(*Hub) error{
		"snapshot": func(h *Hub) error { _, err := h.Snapshot(t.Context(), root); return err },
		"state":    func(h *Hub) error { return h.WriteState(t.Context(), root, io.Discard) },
		"stream": func(h *Hub) error {
			ctx, end := context.WithCancel(t.Context())
			defer end()
			return h.Follow(ctx, root, brokenWriter{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			host := newHost()
			host.start(10, 1000)
			began := time.Now()
			qt.Assert(t, qt.IsNil(host.hub.pause(t.Context(), client{uid: 1000}, func() { time.Sleep(took) })))
			_ = ask(host.hub)
			qt.Check(t, qt.IsTrue(time.Since(began) >= pauseShare*took), qt.Commentf("after %v", time.Since(began)))
		})
	}
}
