package top

import (
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/scene"
	"ttmem/tracer/event"
)

// A tape is a recording of the scene, which is in memory.
type tape struct {
	*Live
	events []event.Event
	stops  []Stop
	sought []memory.Point
}

func (r *tape) Span() (first, last memory.Point) {
	return memory.Point{TimeNs: r.events[0].TimeNs}, memory.Point{Number: uint64(len(r.events)), TimeNs: r.events[len(r.events)-1].TimeNs}
}

func (r *tape) Losses() memory.AllLosses { return r.until(r.last()).Snapshot().Losses(false, nil) }

func (r *tape) Stops() []Stop { return r.stops }

func (r *tape) Timelines() []memory.RegionTimeline { return r.until(r.last()).Timelines() }

func (r *tape) last() memory.Point { _, last := r.Span(); return last }

func (r *tape) until(at memory.Point) *aggregate.State {
	s := aggregate.New()
	for i := range r.events {
		if at.Number > 0 && i == int(at.Number) || at.Number == 0 && r.events[i].TimeNs > at.TimeNs {
			break
		}
		s.Apply(&r.events[i])
	}
	return s
}

func (r *tape) Seek(at memory.Point) error {
	r.sought = append(r.sought, at)
	s := r.until(at)
	r.Show(s, &r.events[max(1, s.Number())-1], 0)
	return nil
}

// tapeStage shows a recording of 600 events at its peak.
func tapeStage(t *testing.T, width, height int) (*stage, *tape) {
	t.Helper()
	r := &tape{Live: NewLive("model.ttmem")}
	of := scene.New(func(e *event.Event) { r.events = append(r.events, *e) })
	of.Load()
	of.Emit(&event.Event{Kind: event.Mark, TimeNs: of.NowNs, Cause: "warm"})
	of.Steps(3)
	of.Emit(&event.Event{Kind: event.AllocFailed, TimeNs: of.NowNs, PID: scene.Test, Region: event.L1, SizeBytes: 512 << 20})
	of.Steps(3)
	for i := range r.events {
		point := memory.Point{Number: uint64(i + 1), TimeNs: r.events[i].TimeNs}
		switch r.events[i].Kind {
		case event.Mark:
			r.stops = append(r.stops, Stop{point, StopMark, "mark warm"})
		case event.AllocFailed:
			r.stops = append(r.stops, Stop{point, StopFailure, "failed allocation, PID 6001"})
		}
		if i == 500 {
			r.stops = append(r.stops, Stop{point, StopPeak, "peak of DRAM, chips 0-31"})
		}
	}
	s := emptyStage(width, height)
	s.live = r.Live
	o := Options{Source: r, NowNs: func() uint64 { return 0 }, Recording: r, At: r.stops[0].Point}
	s.look = o.sampler()
	s.reel = &reel{Recording: r, at: o.At}
	qt.Assert(t, qt.IsNil(r.Seek(o.At)))
	s.refresh()
	return s, r
}

// scrubTo presses keys, as the view does.
func (s *stage) scrubTo(t *testing.T, keys ...string) {
	t.Helper()
	for _, key := range keys {
		if s.press(key) == seek {
			qt.Assert(t, qt.IsNil(s.reel.Seek(s.reel.at)))
			s.refresh()
		}
	}
}

func TestARecordingIsScrubbed(t *testing.T) {
	s, r := tapeStage(t, 80, 24)
	for _, test := range []struct {
		keys string
		want string // in the line of the recording
	}{
		{"", "peak of DRAM, chips 0-31"},
		{"n", "mark warm"},
		{"n", "failed allocation, PID 6001"},
		{"n", "end"},
		{"n", "end"},
		{"N", "failed allocation"},
		{"N N", "peak of DRAM"},
		{"N", " 0.000 s of "},
		{".", "device open, PID 4242"},
		{". .", "alloc .* of DRAM, PID 4242"},
		{",", "alloc .* of DRAM, PID 4242"},
		{"right", " 0.5\\d\\d s of "},
		{"shift+right left", " 4.\\d\\d\\d s of "},
	} {
		s.scrubTo(t, strings.Fields(test.keys)...)
		line := strings.Split(s.text(), "\n")[1]
		qt.Check(t, qt.Matches(line, ".*"+test.want+".*"), qt.Commentf("after %s", test.keys))
		qt.Check(t, qt.IsTrue(page.Width(line) <= 80))
	}
	qt.Check(t, qt.IsTrue(len(r.sought) > 10))
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "RATE/s")))
}

func TestTimesAreByTheWallClock(t *testing.T) {
	s, r := tapeStage(t, 80, 24)
	at := r.stops[0].TimeNs
	s.model.clock = page.NewClock(time.Date(2026, 11, 23, 8, 37, 24, 123456789, time.UTC), at)
	qt.Check(t, qt.Matches(strings.Split(s.text(), "\n")[1], ` 2026-11-23 08:37:24.123456 UTC ─.* peak of DRAM, chips 0-31`))
	s.scrubTo(t, ",")
	qt.Check(t, qt.Matches(strings.Split(s.text(), "\n")[1], ` 2026-11-23 08:37:2\d.\d{6} UTC ─.*`))
	live := newStage(t, 80, 24)
	live.model.clock = page.NewClock(time.Date(2026, 11, 23, 8, 37, 24, 123456789, time.UTC), live.scene.NowNs)
	qt.Check(t, qt.Equals(strings.Split(live.text(), "\n")[1], " 2026-11-23 08:37:24.123456 UTC"))
	live.scene.Steps(1)
	live.refresh()
	qt.Check(t, qt.Not(qt.StringContains(live.text(), "08:37:24.123456")))
}

func TestARecordingsFrames(t *testing.T) {
	for _, size := range frameSizes {
		s, _ := tapeStage(t, size.width, size.height)
		s.Attributes = false
		s.golden(t, size.name+"_recording")
	}
}

// The bar of a recording answers the mouse: a click goes to its time, and the wheel goes on.
func TestTheMouseScrubs(t *testing.T) {
	s, _ := tapeStage(t, 80, 24)
	s.frame()
	half := s.reel.from + s.reel.columns/2
	qt.Assert(t, qt.Equals(s.click(half, s.reel.y), seek))
	share := float64(s.reel.at.TimeNs-s.reel.beginNs()) / float64(s.reel.lengthNs())
	qt.Check(t, qt.IsTrue(share > 0.48 && share < 0.52), qt.Commentf("%.2f", share))
	before := s.reel.at.TimeNs
	qt.Check(t, qt.Equals(s.wheel(s.reel.y, 3), seek))
	qt.Check(t, qt.IsTrue(s.reel.at.TimeNs > before))
	qt.Check(t, qt.Equals(s.drag(s.reel.from, s.reel.y), seek))
	qt.Check(t, qt.Equals(s.reel.at.TimeNs, s.reel.beginNs()))
	qt.Check(t, qt.Equals(s.drag(s.reel.from, s.reel.y+5), nothing))
}

// clickOn clicks the first place where the screen has a text.
func (s *stage) clickOn(t *testing.T, pattern string) request {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for y, line := range strings.Split(s.text(), "\n") {
		if at := re.FindStringIndex(line); at != nil {
			return s.click(page.Width(line[:at[0]]), y)
		}
	}
	t.Fatalf("nothing is %s:\n%s", pattern, s.text())
	return nothing
}

func TestClicks(t *testing.T) {
	s := newStage(t, 80, 24)
	s.clickOn(t, `load_w3`)
	qt.Check(t, qt.Equals(s.cursor, 2))
	qt.Check(t, qt.Equals(s.page, pageTable))
	s.clickOn(t, `load_w3`)
	qt.Check(t, qt.Equals(s.page, pageStack))
	qt.Check(t, qt.StringContains(s.text(), "innermost call first"))
	s.clickOn(t, `Esc back`)
	qt.Check(t, qt.Equals(s.page, pageTable))

	s.clickOn(t, `python train.py`)
	qt.Check(t, qt.Equals(s.filter.pid, scene.Training))
	s.clickOn(t, `python train.py`)
	qt.Check(t, qt.Equals(s.filter.pid, 0))

	s.clickOn(t, `BUFFERS`)
	qt.Check(t, qt.Equals(orders[s.order].name, "count"))
	s.clickOn(t, `BUFFERS`)
	qt.Check(t, qt.IsTrue(s.reversed))
	s.clickOn(t, `STACK`)
	qt.Check(t, qt.Equals(orders[s.order].name, "name"))

	s.clickOn(t, `all regions`)
	qt.Check(t, qt.Equals(s.filter.region, 1))
	s.clickOn(t, `by stack`)
	qt.Check(t, qt.Equals(groupings[s.by], "op"))
	s.clickOn(t, `t graph`)
	qt.Check(t, qt.Equals(s.page, pageHistory))
	s.wheel(0, 3)
	s.frame()
	qt.Check(t, qt.Equals(s.scroll, 3))
	s.clickOn(t, `Esc back`)
	s.press("home")
	s.wheel(20, 3)
	qt.Check(t, qt.Equals(s.cursor, 3))
	qt.Check(t, qt.Equals(s.clickOn(t, `q quit`), quit))
	s.press("/")
	qt.Check(t, qt.Equals(s.click(5, 23), nothing)) // while the user types
}

// Users who see only their own processes see how full the whole chip is, and which part is theirs.
func TestTheWholeChipIsShownWithTheUsersOwnPart(t *testing.T) {
	all := newStage(t, 80, 24)
	s := emptyStage(80, 24)
	own := scene.New(func(e *event.Event) {
		if e.PID == scene.Training {
			s.live.Handle(e)
		}
	})
	own.Load()
	s.live.OwnOnly("other users hold 8.5 GiB of 12.0 GiB of DRAM on each of 0-31")
	s.live.Chips(all.present.Devices, own.NowNs)
	s.live.Chips(all.present.Devices, own.NowNs+1e9)
	s.refresh()
	qt.Check(t, qt.HasLen(s.rows, 2)) // the user's own
	s.press("]")
	for range 24 {
		s.press("]")
	}
	s.Attributes = false
	qt.Check(t, qt.StringContains(s.text(), "chip 24"))
	for _, size := range frameSizes {
		s.width, s.height = size.width, size.height
		s.golden(t, size.name+"_own_part")
	}
	s.width, s.height = 80, 24
	s.ASCII = true
	qt.Check(t, qt.Matches(s.text(), `(?s).*\n DRAM +#{3}\+{12}.*`))
	s.press("p") // what one process has needs no other part
	qt.Check(t, qt.StringContains(s.text(), "2.2 GiB"))
	qt.Check(t, qt.Not(qt.Matches(s.text(), `(?s).*\n DRAM +#+\+.*`)))
}

// A command that has ended freed everything: the view stays at its latest allocation.
func TestTheLastStateOfACommandStays(t *testing.T) {
	s := emptyStage(80, 24)
	s.live.KeepLast()
	of := scene.New(s.live.Handle)
	of.Load()
	of.Steps(20)
	s.refresh()
	held := s.present.Devices
	end := func(pid int) {
		s.live.Handle(&event.Event{Kind: event.Free, TimeNs: of.NowNs + 1, PID: pid, BufferID: 1, Reason: event.ReasonExplicit})
		s.live.Handle(&event.Event{Kind: event.ProcessExit, TimeNs: of.NowNs + 2, PID: pid})
	}
	for _, pid := range []int{scene.Server, scene.Training, scene.Test} {
		end(pid)
	}
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "Nothing is allocated now."))
	s.live.End("ended with status 0")
	s.refresh()
	qt.Check(t, qt.DeepEquals(s.present.Devices, held))
	qt.Check(t, qt.StringContains(s.text(), "The command has ended: this is its memory after its last allocation or run."))
}

// Between two allocations a command may run programs for days.
func TestTheLastStateOfACommandTakesNoMemoryForEachEvent(t *testing.T) {
	live := NewLive("")
	live.KeepLast()
	of := scene.New(live.Handle)
	of.Load()
	for i := range 1000 {
		if i%100 == 0 {
			live.Handle(&event.Event{Kind: event.Free, TimeNs: of.NowNs, PID: scene.Server, BufferID: 1 << 40, Reason: event.ReasonExplicit})
		}
		live.Handle(&event.Event{Kind: event.ProgramRun, TimeNs: of.NowNs, PID: scene.Server, Devices: []int{0}, ProgramID: 1})
		live.Handle(&event.Event{Kind: event.Owner, TimeNs: of.NowNs, PID: scene.Server, BufferID: 2, Cause: "x"})
		qt.Assert(t, qt.HasLen(live.later, 0))
	}
}

// What a key changes while a sample is made is shown, although nothing else changes in a recording.
func TestAKeyDuringASample(t *testing.T) {
	s, _ := tapeStage(t, 110, 30)
	v := &view{model: s.model, sampler: s.look}
	first := v.sampleNow() // before the mark
	old := first()
	_, more := v.Update(tea.KeyPressMsg{Code: 'm', Text: "m"})
	qt.Assert(t, qt.IsNil(more)) // one sample at a time
	_, second := v.Update(old)
	qt.Check(t, qt.IsFalse(s.present.Marked))
	qt.Assert(t, qt.IsNotNil(second))
	_, third := v.Update(second())
	qt.Check(t, qt.IsTrue(s.present.Marked))
	qt.Check(t, qt.IsNil(third))
	qt.Check(t, qt.StringContains(s.text(), "GROWTH"))
}
