package top

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/e2e/pagetest"
	"ttmem/e2e/scene"
	"ttmem/tracer/event"
)

func TestTheHelpSaysWhatEachColumnIs(t *testing.T) {
	s := newStage(t, 80, 200)
	s.press("?")
	help := s.text()
	for _, part := range []struct{ title, end string }{{" Chips\n", " Processes\n"}, {" Processes\n", " Live memory\n"}, {" Live memory\n", "Esc back"}} {
		_, text, found := strings.Cut(help, "\n"+part.title)
		qt.Assert(t, qt.IsTrue(found), qt.Commentf("%s", part.title))
		text, _, _ = strings.Cut(text, part.end)
		names := []string{"DRAM", page.L1PerCore, "L1_SMALL", "TRACE", "host", "used", "peak"}
		switch part.title {
		case " Processes\n":
			names = nil
			for _, c := range processColumns {
				if c.name != "PID" && c.name != "BUFFERS" { // as below
					names = append(names, c.name)
				}
			}
		case " Live memory\n":
			names = nil
			for _, c := range columns {
				names = append(names, c.name)
			}
		}
		for _, name := range names {
			qt.Check(t, qt.Matches("\n"+text, `(?s).*\n   [^\n]{0,12}`+regexp.QuoteMeta(name)+`.*`), qt.Commentf("%s", name))
		}
	}
}

func TestARecordingHasNoRates(t *testing.T) {
	s := newStage(t, 120, 40)
	qt.Assert(t, qt.StringContains(s.text(), "RATE/s"))
	s.live.End("its end")
	s.refresh()
	for range orders {
		s.press("s")
		text := s.text()
		qt.Check(t, qt.IsFalse(strings.Contains(text, "RATE/s") || strings.Contains(text, "events/s") || strings.Contains(text, "s rate")))
	}
}

func TestUsersSeeTheTotalsOfOtherUsers(t *testing.T) {
	s := newStage(t, 80, 24)
	s.live.OwnOnly("other users hold 3.0 GiB of 12.0 GiB of DRAM on each of 1-3")
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "\n Only your own processes are shown: other users hold 3.0 GiB of 12.0 GiB of\n DRAM on each of 1-3\n"))
	s = emptyStage(80, 24)
	s.live.OwnOnly("other users use no chip")
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "None of your processes has a device open."))
}

func TestThatMemoryIsStillReadIsSaid(t *testing.T) {
	s := newStage(t, 80, 24)
	s.live.Unread(true)
	s.refresh()
	qt.Check(t, qt.StringContains(s.text(), "\n The memory of processes that were already running is still being read: totals\n are incomplete.\n"))
	s.live.Unread(false)
	s.refresh()
	qt.Check(t, qt.IsFalse(strings.Contains(s.text(), "still being read")))
}

func TestRowsOfOneLineDifferByTheirCallers(t *testing.T) {
	s := emptyStage(80, 24)
	for line := range alloc.OwnRows {
		s.live.Handle(&event.Event{
			Kind: event.Alloc, PID: 1, BufferID: uint64(line), Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1024, Banks: 1,
			Stack: event.StackOf([]event.Frame{
				{Kind: event.Python, Name: "a_function_of_a_very_long_name", File: "/home/user/layers_of_a_model.py", Line: 1234},
				{Kind: event.Python, Name: "its_caller_of_a_very_long_name", File: "/home/user/layers_of_a_model.py", Line: 2000 + line},
			}),
		})
	}
	s.refresh()
	for line := range alloc.OwnRows {
		qt.Check(t, qt.StringContains(s.text(), fmt.Sprintf("layers_of_a_model.py:1234 ← :200%d", line)))
	}
}

// Leaks are those of `ttmem leaks`: a server that keeps what it logs, and no weights.
func TestLeaksAreShown(t *testing.T) {
	s := emptyStage(80, 24)
	s.scene = scene.New(s.live.Handle)
	s.scene.Load()
	s.refresh()
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "leaked")))
	s.scene.Steps(20)
	for range 6 { // they are searched now and then
		s.refresh()
	}
	qt.Check(t, qt.StringContains(s.text(), "\n !  480.0 MiB leaked: serve.py:88 log_probs\n"))
	s.filter.pid = scene.Training
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "leaked")))
	s.filter.pid = 0

	leak := s.present.leaks[0]
	s.present.leaks = nil
	for line := range 3 {
		leak.Bytes = uint64(line+1) << 20
		leak.Stack = event.StackOf([]event.Frame{{Kind: event.Python, Name: "f", File: "/home/user/model.py", Line: line + 1}})
		s.present.leaks = append(s.present.leaks, leak)
	}
	qt.Check(t, qt.StringContains(s.text(), "\n !  6.0 MiB leaked: model.py:3 f and 2 more: ttmem leaks\n"))
}

func TestOncePrintsAFrameForScripts(t *testing.T) {
	s := newStage(t, 80, 24)
	var out strings.Builder
	err := Once(&out, Options{Source: s.live, NowNs: func() uint64 { return 0 }, Color: true}, 100, 0, true)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsFalse(strings.Contains(out.String(), "\x1b")))
	qt.Check(t, qt.Matches(out.String(), `(?s).*chips 0-2,4-23.*PROCESS.*STACK\n([^\n]*\n){27}`))
}

func TestOnceFitsATerminal(t *testing.T) {
	s := newStage(t, 80, 24)
	for _, rows := range []int{1, 14, 22, 60} {
		var out strings.Builder
		qt.Assert(t, qt.IsNil(Once(&out, Options{Source: s.live, NowNs: func() uint64 { return 0 }}, 80, rows, true)))
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		qt.Check(t, qt.IsTrue(len(lines) <= max(rows, leastHeight)), qt.Commentf("%d rows: %s", rows, out.String()))
		qt.Check(t, qt.Matches(out.String(), `(?s).* L1 per core.*PROCESS.*STACK.*`))
		qt.Check(t, qt.Equals(strings.HasPrefix(lines[len(lines)-1], " and "), rows < 60))
		qt.Check(t, qt.Not(qt.StringContains(out.String(), "p selects")))
	}
}

func TestFrames(t *testing.T) {
	type frame struct {
		name          string
		width, height int
		painter       painter
		keys          []string
	}
	frames := []frame{
		{"80x24_color", 80, 24, painter{page.Painter{Color: true, Attributes: true}}, nil},
		{"80x24_nocolor", 80, 24, painter{page.Painter{Attributes: true}}, nil},
		{"80x24_ascii", 80, 24, painter{page.Painter{ASCII: true}}, nil},
		{"80x24_graph_ascii", 80, 24, painter{page.Painter{ASCII: true}}, []string{"t"}},
		{"60x14", 60, 14, painter{}, nil},
		{"20x5", 20, 5, painter{}, nil},
	}
	for _, size := range frameSizes {
		for view, keys := range map[string][]string{
			"":          nil,
			"_unfolded": {"f"},
			"_one_chip": {"]", "]", "]", "]"},
			"_process":  {"p", "p"},
			"_stack":    {"down", "enter"},
			"_help":     {"?"},
			"_graph":    {"]", "t"},
			"_by_op":    {"g"},
		} {
			frames = append(frames, frame{size.name + view, size.width, size.height, painter{}, keys})
		}
	}
	for _, test := range frames {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, test.width, test.height)
			s.painter = test.painter
			s.press(test.keys...)
			s.golden(t, test.name)
		})
	}
}

// ownedStage is a process that was attached late, and whose heap was read since: it holds weights,
// adds to a list, and has a name that a terminal must not get.
func ownedStage(width, height int) *stage {
	s := emptyStage(width, height)
	s.painter = painter{}
	r := pagetest.Run{State: aggregate.New(), Now: 1000 * pagetest.Second}
	apply := func(e event.Event) {
		r.Now += pagetest.Second / 10
		e.TimeNs, e.PID = r.Now, 4242
		s.live.Handle(&e)
	}
	apply(event.Event{Kind: event.ProcessStart, Comm: "python3", Start: &event.Start{Command: "python3 serve.py"}})
	alloc := func(region event.Region, kib uint64, stack *event.Stack, path, tensor string) {
		r.Id++
		e := event.Event{
			Kind: event.Alloc, BufferID: r.Id, Devices: []int{0}, Region: region, BytesPerBank: kib << 10, SizeBytes: kib * 12 << 10, Banks: 12,
			BeforeAttach: stack == nil, Stack: stack,
		}
		apply(e)
		if path != "" {
			apply(event.Event{Kind: event.Owner, BufferID: r.Id, Cause: path, Message: tensor})
		}
	}
	for i := range 4 {
		alloc(event.DRAM, 128, nil, fmt.Sprintf("model.layers[%d].attention.wq", i), "bf16[1,1,1024,768] TILE")
		alloc(event.DRAM, 64, nil, fmt.Sprintf("model.layers[%d].mlp.\x1b[31mw1\u202e", i), fmt.Sprintf("bfp8[1,1,%d,768] TILE", 32*i))
		alloc(event.L1, 2, pagetest.Stack("add", "Attention.forward", 12), fmt.Sprintf("model.debug[%d]", i), "bf16[1,1,32,32] TILE")
	}
	alloc(event.L1, 1, pagetest.Stack("add", "Attention.forward", 12), "local x of forward()", "bf16[1,1,32,32] TILE")
	alloc(event.DRAM, 16, nil, "", "")
	alloc(event.DRAM, 8, pagetest.Stack("matmul", "Attention.forward", 14), "", "")
	s.refresh()
	return s
}

// TestGrowthGoesToTheOwners: what a list got since a mark is the list's growth, and that of no owner is what
// has none.
func TestGrowthGoesToTheOwners(t *testing.T) {
	s := emptyStage(200, 50)
	stack, now, id := pagetest.Stack("add", "step", 12), uint64(1000*pagetest.Second), uint64(0)
	apply := func(e event.Event) {
		now += pagetest.Second / 10
		e.TimeNs, e.PID = now, 4242
		s.live.Handle(&e)
	}
	alloc := func(path string) {
		id++
		apply(event.Event{Kind: event.Alloc, BufferID: id, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1 << 20, SizeBytes: 12 << 20, Banks: 12, Stack: stack})
		if path != "" {
			apply(event.Event{Kind: event.Owner, BufferID: id, Cause: path})
		}
	}
	for i := range 3 {
		alloc(fmt.Sprintf("history[%d]", i))
	}
	alloc("kept")
	s.refresh()
	s.press("m")
	for i := range 5 {
		alloc(fmt.Sprintf("history[%d]", 3+i))
	}
	alloc("")
	alloc("")
	s.live.heldIn = nil // as seconds later
	s.refresh()
	s.press("g", "g", "g", "g", "g")
	qt.Assert(t, qt.Equals(groupings[s.by], "owner"))
	growth := make(map[string]uint64)
	for _, r := range s.rows {
		growth[r.Text] = r.Amounts[grown].Bytes >> 20
	}
	qt.Check(t, qt.DeepEquals(growth, map[string]uint64{"history[*]": 60, "kept": 0, "(owner not known)": 24}))
}

// TestOwners: buffers without a stack have a row for each holder; the page of a row has the whole
// paths.
func TestOwners(t *testing.T) {
	for _, size := range frameSizes {
		for view, keys := range map[string][]string{
			"_held":          nil,
			"_held_by_owner": {"g", "g", "g", "g", "g"},
			"_held_stack":    {"enter"},
			"_held_several":  {"down", "down", "down", "enter"},
		} {
			t.Run(size.name+view, func(t *testing.T) {
				s := ownedStage(size.width, size.height)
				s.press(keys...)
				qt.Check(t, qt.IsFalse(strings.ContainsAny(strings.Join(s.frame(), ""), "\x1b\u202e")))
				s.golden(t, size.name+view)
			})
		}
	}
	s := ownedStage(80, 24)
	s.press("/")
	s.typeText("debug")
	s.press("enter")
	qt.Check(t, qt.HasLen(s.rows, 1))
}

// frameSizes are the terminals of docs/captures, which shows these golden files.
var frameSizes = []struct {
	name          string
	width, height int
}{{"80x24", 80, 24}, {"200x50", 200, 50}}

func TestGrowthAfterAMarkIsWhatWasAllocatedSinceAndIsStillThere(t *testing.T) {
	for _, size := range frameSizes {
		s := newStage(t, size.width, size.height)
		s.Attributes = false
		s.press("m")
		s.scene.Steps(16)
		s.refresh()
		rows := s.table()
		// 16 tensors of 65,536 bytes on 12 banks of 32 chips
		qt.Check(t, qt.Matches(rows[0], `.* \+384.0 MiB .*DRAM .*serve.py:88 log_probs.* · ttnn.clone.*`))
		s.golden(t, size.name+"_growth")
		s.press("M")
		qt.Check(t, qt.IsFalse(strings.Contains(s.text(), "GROWTH")))
	}
}

// A whole frame resets the margins that an older, smaller one may have left.
func TestWholeFrameResetsMargins(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer read.Close()
	frame := "\x1b[H\x1b[2Jone\r\n"
	n, err := terminal{write}.Write([]byte("a part" + frame + frame))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(n, len("a part"+frame+frame)))
	qt.Assert(t, qt.IsNil(write.Close()))
	written, err := io.ReadAll(read)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(written), "a part\x1b[r"+frame+"\x1b[r"+frame))
}
