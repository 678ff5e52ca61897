package top

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"
	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/scene"
	"ttmem/tracer/event"
)

var update = flag.Bool("update", false, "write the golden frames anew")

// A stage is a view of made-up events, driven by hand.
type stage struct {
	*model
	look  *sampler
	live  *Live
	scene *scene.Scene
	clock time.Time
}

// newStage is a view of 32 chips.
func newStage(t *testing.T, width, height int) *stage {
	t.Helper()
	s := emptyStage(width, height)
	s.scene = scene.New(s.live.Handle)
	s.scene.Load()
	s.scene.Steps(20)
	s.refresh()
	return s
}

func emptyStage(width, height int) *stage {
	live := NewLive("this host")
	o := Options{Source: live, NowNs: func() uint64 { return 0 }}
	l := o.sampler()
	return &stage{
		model: &model{
			painter: painter{page.Painter{Attributes: true}}, width: width, height: height,
			users: maps.Clone(scene.UserNames),
		},
		look: l, live: live,
		clock: time.Unix(1000, 0),
	}
}

// refresh is a look a second later.
func (s *stage) refresh() {
	s.clock = s.clock.Add(time.Second)
	s.show(s.look.sample(s.clock))
}

// press presses keys one after the other, and does what they ask for.
func (s *stage) press(keys ...string) (last request) {
	for _, key := range keys {
		last = s.model.press(key)
		switch last {
		case mark:
			s.live.Mark()
		case unmark:
			s.live.Unmark()
		}
		if last != nothing {
			s.refresh()
		}
	}
	return last
}

func (s *stage) typeText(text string) {
	for _, r := range text {
		s.press(string(r))
	}
}

// text is the frame without colours.
func (s *stage) text() string { return ansi.Strip(strings.Join(s.frame(), "\n")) }

// table is the rows of the table.
func (s *stage) table() []string {
	lines := strings.Split(s.text(), "\n")
	for i, line := range lines {
		if strings.Contains(line, " BUFFERS") && strings.Contains(line, "ALL BANKS") {
			return lines[i+1 : len(lines)-1]
		}
	}
	return nil
}

// golden compares a frame with the one in testdata.
func (s *stage) golden(t *testing.T, name string) {
	t.Helper()
	lines := s.frame()
	for i, line := range lines {
		qt.Check(t, qt.IsTrue(page.Width(line) <= s.width), qt.Commentf("line %d is too long: %q", i, line))
		if !s.Attributes {
			lines[i] = strings.TrimRight(line, " ")
		}
	}
	if !s.once {
		qt.Check(t, qt.Equals(len(lines), s.height))
	}
	got := strings.Join(lines, "\n") + "\n"
	path := filepath.Join("testdata", name+".golden")
	if *update {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(got), 0o644)))
	}
	want, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(got, string(want)))
}

func TestAMarkInTheStreamCountsUntilTheUserSetsOne(t *testing.T) {
	s := newStage(t, 80, 24)
	at := func() event.Event {
		return event.Event{Kind: event.Mark, TimeNs: s.scene.NowNs, Cause: "epoch"}
	}
	e := at()
	s.live.Handle(&e)
	s.scene.Steps(1)
	s.refresh()
	qt.Check(t, qt.IsTrue(s.present.Marked))
	s.press("m")
	of := s.present.MarkNs
	s.scene.Steps(1)
	e = at()
	s.live.Handle(&e)
	s.refresh()
	qt.Check(t, qt.Equals(s.present.MarkNs, of))
}

func TestFilters(t *testing.T) {
	for _, test := range []struct {
		name string
		keys []string
		text string
		// want is what each row has, and count how many rows there are
		want  string
		count int
	}{
		{"text of a name", []string{"/"}, "log_probs", "serve.py:88", 1},
		{"text of a caller's line", []string{"/"}, `serve\.py:71`, "conv2d", 1},
		{"text that has no capitals finds them", []string{"/"}, "kvcache", "KVCache", 2},
		{"text that is no expression", []string{"/"}, "zeros(", "", 0},
		{"region", []string{"r", "r", "r"}, "", "CB", 5},
		{"process", []string{"p", "p"}, "", "train|adam", 2},
		{"chip", []string{"c"}, "3,99", "", -1}, // there is no chip 99
		{"chip of a test", []string{"c"}, "3", "", 25},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, 200, 50)
			s.press(test.keys...)
			if test.text != "" {
				s.typeText(test.text)
				s.press("enter")
			}
			if test.count < 0 {
				qt.Check(t, qt.StringContains(s.text(), "no chip 99; available: 0-31"))
				return
			}
			qt.Check(t, qt.Equals(len(s.rows), test.count))
			for _, line := range s.table()[:len(s.rows)] {
				qt.Check(t, qt.Matches(line, ".*("+test.want+").*"))
			}
			s.press("esc")
			qt.Check(t, qt.Equals(s.filter.text, ""))
		})
	}
}

func TestAFilterByChipCountsWhatIsOnIt(t *testing.T) {
	s := newStage(t, 80, 24)
	all := s.rows[0].Amounts[live].Bytes
	s.press("]")
	qt.Check(t, qt.Equals(s.rows[0].Amounts[live].Bytes, all/scene.Chips))
}

func TestAProcessFilterShowsItsShareInTheBars(t *testing.T) {
	s := newStage(t, 80, 24)
	s.press("p", "p") // the training
	text := s.text()
	qt.Check(t, qt.StringContains(text, "chips 24-31"))
	qt.Check(t, qt.StringContains(text, "2.2 GiB"))
}

func TestGroupingsAddUp(t *testing.T) {
	s := newStage(t, 120, 40)
	sum := func() (bytes, circular uint64) {
		for _, r := range s.rows {
			bytes += r.Amounts[live].Bytes
			circular += r.Amounts[statics].Count
		}
		return bytes, circular
	}
	wantBytes, wantStatics := sum()
	for range groupings {
		s.press("g")
		bytes, circular := sum()
		qt.Check(t, qt.Equals(bytes, wantBytes), qt.Commentf("by %s", groupings[s.by]))
		if groupings[s.by] != "chip" { // where each counts on all its chips
			qt.Check(t, qt.Equals(circular, wantStatics), qt.Commentf("by %s", groupings[s.by]))
		}
	}
	qt.Check(t, qt.Equals(s.by, 0))
}

func TestAGroupIsOpenedByStack(t *testing.T) {
	s := newStage(t, 120, 40)
	s.press("g") // by op
	s.press("down", "enter")
	in := s.filter.in.Key
	qt.Check(t, qt.IsTrue(len(s.rows) > 0))
	for _, r := range s.rows {
		qt.Check(t, qt.Equals(s.present.sites[memory.StackID(r.Stack)].Name.Op, in.Text))
	}
	s.press("esc")
	qt.Check(t, qt.Equals(groupings[s.by], "op"))
	qt.Check(t, qt.Equals(s.rows[s.cursor].Key, in))
}

func TestOrders(t *testing.T) {
	s := newStage(t, 120, 40)
	for range len(orders) {
		for i := 1; i < len(s.rows); i++ {
			qt.Check(t, qt.IsTrue(orders[s.order].compare(s.rows[i-1], s.rows[i]) <= 0), qt.Commentf("by %s", orders[s.order].name))
		}
		s.press("s")
	}
	first := s.rows[0].Key
	s.press("S")
	qt.Check(t, qt.Equals(s.rows[len(s.rows)-1].Key, first))
}

func TestWhatIsFreedAtOnceIsSeenByItsRate(t *testing.T) {
	s := newStage(t, 120, 40)
	s.press("s", "s") // by rate: growth is left out
	qt.Assert(t, qt.Equals(orders[s.order].name, "rate"))
	s.scene.Steps(50)
	s.refresh()
	// 20 buffers in each of 50 steps of one second, from 4 lines
	qt.Check(t, qt.Equals(s.rows[0].Rate, 250))
	qt.Check(t, qt.StringContains(s.text(), "mlp.py:30 MLP.forward"))
}

func TestASelectedRowStaysSelected(t *testing.T) {
	s := newStage(t, 80, 24)
	s.press("down", "down", "down")
	key := s.rows[3].Key
	s.scene.Steps(400)
	s.refresh()
	qt.Check(t, qt.Equals(s.rows[s.cursor].Key, key))
	s.press("home")
	qt.Check(t, qt.Equals(s.cursor, 0))
	s.press("end", "pgdown", "down")
	qt.Check(t, qt.Equals(s.cursor, len(s.rows)-1))
	qt.Check(t, qt.StringContains(s.text(), page.Grouped(uint64(len(s.rows)))+" of "))
}

func TestPausedNothingMoves(t *testing.T) {
	s := newStage(t, 80, 24)
	s.press("space")
	before := s.text()
	qt.Check(t, qt.StringContains(before, "PAUSED"))
	s.scene.Steps(10)
	s.refresh()
	qt.Check(t, qt.Equals(s.text(), before))
	s.press("space")
	s.refresh()
	qt.Check(t, qt.Not(qt.Equals(s.text(), before)))
}

func TestAnySizeAndAnyKeyIsSurvived(t *testing.T) {
	keys := []string{"?", "down", "pgdown", "esc", "enter", "end", "right", "esc", "g", "g", "enter", "o", "esc", "t", "end", "t", "left", ".", "f", "s", "S", "[", "]",
		"c", "x", "enter", "/", "backspace", "(", "enter", "esc", "esc", "esc", "m", "M", "r", "R", "p", "P", "é", "f13"}
	for _, size := range [][2]int{{1, 1}, {20, 5}, {59, 14}, {60, 13}, {60, 14}, {61, 15}, {79, 23}, {100, 20}, {132, 43}, {300, 100}} {
		s := newStage(t, 80, 24)
		s.width, s.height = size[0], size[1]
		for _, key := range keys {
			s.press(key)
			lines := s.frame()
			qt.Assert(t, qt.Equals(len(lines), max(1, s.height)), qt.Commentf("%v after %s", size, key))
			for _, line := range lines {
				qt.Assert(t, qt.IsTrue(page.Width(line) <= max(1, s.width)), qt.Commentf("%v after %s: %q", size, key, line))
			}
		}
	}
}

func TestNothingAllocatedIsSaid(t *testing.T) {
	s := emptyStage(80, 24)
	qt.Check(t, qt.StringContains(s.text(), "Loading"))
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "No process has a device open."))
	qt.Check(t, qt.StringContains(s.text(), "Nothing is allocated now."))
	s.live.Doing("reading the memory of PID 7")
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "No device is known yet: reading the memory of PID 7…"))
	s.live.End("ended with status 0")
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "No device was opened."))
	qt.Check(t, qt.StringContains(s.text(), "Nothing is allocated at the end;"))
	qt.Check(t, qt.Equals(s.press("enter", "down", "esc", "["), nothing))
}

func TestLossesAndFailuresAreShown(t *testing.T) {
	s := newStage(t, 80, 24)
	for _, e := range []event.Event{
		{Kind: event.Lost, Count: 12, Cause: "ring buffer full"},
		{Kind: event.AllocFailed, TimeNs: s.scene.NowNs, PID: scene.Test, Region: event.L1, SizeBytes: 512 << 20},
		{Kind: event.TraceBegin, TimeNs: s.scene.NowNs, PID: scene.Test, ProgramID: 3, Devices: []int{0}},
		{Kind: event.TraceEnd, TimeNs: s.scene.NowNs, PID: scene.Test, ProgramID: 3, Devices: []int{0}},
		{
			Kind: event.Alloc, TimeNs: s.scene.NowNs, PID: scene.Test, Allocator: 0x6001, BufferID: 1 << 40, Region: event.DRAM, Devices: []int{0},
			SizeBytes: 12288, BytesPerBank: 1024, Banks: 12, Stack: event.StackOf([]event.Frame{{Kind: event.Python, Name: "run", File: "late.py", Line: 9}}),
		},
		{Kind: event.TraceReplay, TimeNs: s.scene.NowNs, PID: scene.Test, ProgramID: 3, Devices: []int{0}},
	} {
		s.live.Handle(&e)
	}
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "1 buffer may be overwritten by a trace: 12.0 KiB of late.py:9 run, PID 6001"))
	qt.Check(t, qt.StringContains(s.text(), "totals may be wrong: 12 events lost (ring buffer full)"))
	qt.Check(t, qt.StringContains(s.text(), "1 allocation failed, the last 0.0 s ago: 512.0 MiB of L1, PID 6001"))
}

func TestNamesDoNothingToATerminal(t *testing.T) {
	s := emptyStage(80, 24)
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "f\x1b[2J\x07", File: "/home/\x1b]0;x\x07.py", Line: 1}})
	for _, e := range []event.Event{
		{Kind: event.ProcessStart, PID: 1, Start: &event.Start{Command: "python \x1b[31m\u202ex"}},
		{Kind: event.Alloc, PID: 1, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1024, Banks: 1, Stack: stack},
	} {
		s.live.Handle(&e)
	}
	_, _ = s.live.Write([]byte("bar \x1b[5m10%\rbar 20%\nnext"))
	s.output = true
	s.refresh()
	for _, key := range []string{"enter", "o"} {
		s.Attributes = false
		s.press(key)
		qt.Check(t, qt.IsFalse(strings.ContainsAny(strings.Join(s.frame(), ""), "\x1b\x07\u202e")))
	}
	qt.Check(t, qt.StringContains(s.text(), " bar 20%\n next"))
}

// BenchmarkLook is what a look and its frame cost: of 100,000 buffers that 10,000 stacks
// hold.
func BenchmarkLook(b *testing.B) {
	s := emptyStage(200, 50)
	var stacks []*event.Stack
	for i := range 10_000 {
		stacks = append(stacks, event.StackOf([]event.Frame{
			{Kind: event.Native, Name: "tt::tt_metal::Buffer::create"},
			{Kind: event.Python, Name: "forward", File: "/home/user/model.py", Line: i},
		}))
	}
	for i := range 100_000 {
		s.live.Handle(&event.Event{
			Kind: event.Alloc, PID: 7, Devices: []int{i % 8}, Region: event.DRAM, BufferID: uint64(i),
			BytesPerBank: 4096, Banks: 12, Stack: stacks[i%len(stacks)],
		})
	}
	for b.Loop() {
		s.refresh()
		s.frame()
	}
}
