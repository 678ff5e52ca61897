package web

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func native(names ...string) (frames []event.Frame) {
	for _, name := range names {
		frames = append(frames, event.Frame{Kind: event.Native, Name: name, Module: "_ttnncpp.so"})
	}
	return frames
}

// manyCallers allocate at one line, which is a helper, through frames of ttnn and of Python itself.
func manyCallers() *run {
	r := newRun()
	call := python("__call__", "/usr/lib/python3/site-packages/ttnn/decorators.py", 1245)
	loop := python("run_until_complete", "/usr/lib/python3.10/asyncio/base_events.py", 641)
	alloc := func(size uint64, op string, calls ...event.Frame) {
		r.alloc(event.DRAM, size*mib, 0x1000, stackOf(append(append(native("tt::tt_metal::BufferImpl::create", "ttnn::"+op, "nanobind::func_create<ttnn."+op+">"), call), append(calls, loop)...)...), 0)
	}
	helper := python("empty", "/srv/helper.py", 5)
	for i, size := range []uint64{4, 2, 1} {
		alloc(size, "empty", helper, python(fmt.Sprintf("layer%d", i), "/srv/model.py", 10+i))
	}
	again := python("layer0", "/srv/model.py", 10)
	alloc(8, "exp", again, again)
	alloc(1, "add", python("layer0", "/srv/model.py", 20))
	return r
}

// whole selects everything that is live at the end.
const whole = "#at=99"

func (b *tab) clickBox(text string) {
	b.t.Helper()
	x, ok := b.boxes()[text]
	qt.Assert(b.t, qt.IsTrue(ok), qt.Commentf("no box %q", text))
	b.Click(x.X+x.Width/2, x.Y+x.Height/2)
}

// TestFlamesHaveTheUsersFrames, below the operation. All others are shown on request.
func TestFlamesHaveTheUsersFrames(t *testing.T) {
	b := openPage(t, manyCallers().write(t)+whole)
	boxes := b.boxes()
	for name, bytes := range map[string]uint64{
		"DRAM": 16 * mib, "<module> (model.py:1)": 16 * mib, "layer1 (model.py:11)": 2 * mib, "ttnn.exp": 8 * mib, "ttnn.add": mib,
	} {
		qt.Check(t, qt.Equals(boxes[name].Bytes, bytes), qt.Commentf("%s", name))
	}
	for _, name := range []string{"__call__ (decorators.py:1245)", "run_until_complete (base_events.py:641)", "ttnn::exp"} {
		_, shown := boxes[name]
		qt.Check(t, qt.IsFalse(shown), qt.Commentf("%s", name))
	}
	b.Press("/")
	b.Write("decorators")
	qt.Check(t, qt.Equals(b.Text("matched"), "not found in the shown frames"))
	b.Toggle("all")
	qt.Check(t, qt.Equals(b.Text("matched"), "100.0 % found: 16.0 MiB"))
	boxes = b.boxes()
	qt.Check(t, qt.Equals(boxes["ttnn::exp"].Bytes, 8*mib))
	qt.Check(t, qt.Equals(boxes["run_until_complete (base_events.py:641)"].Bytes, 16*mib))
	b.CheckQuiet()
}

// TestTheFlameGraphZooms: a click zooms, Escape resets, keys move, and Back undoes a zoom.
func TestTheFlameGraphZooms(t *testing.T) {
	b := openPage(t, manyCallers().write(t)+whole)
	boxes := b.boxes()
	x := boxes["ttnn.exp"]
	b.Mouse("mouseMoved", x.X+x.Width/2, x.Y+5, 0)
	b.Settle()
	for _, want := range []string{"ttnn.exp", "8.0 MiB in 1 object", "50.0 % of all"} {
		qt.Check(t, qt.StringContains(b.Text("tip"), want))
	}
	b.clickBox("ttnn.exp")
	zoomed := b.boxes()
	qt.Check(t, qt.Equals(zoomed["ttnn.exp"].Width, zoomed["DRAM"].Width))
	_, shown := zoomed["ttnn.add"]
	qt.Check(t, qt.IsFalse(shown))
	address := b.hash()
	b.clickBox("<module> (model.py:1)")
	b.Eval("(history.back(), true)", new(bool))
	b.Wait(fmt.Sprintf("location.hash === %q", address))
	b.Settle()
	qt.Check(t, qt.DeepEquals(b.boxes(), zoomed))

	b.Press("Escape")
	qt.Check(t, qt.DeepEquals(b.boxes(), boxes))
	b.Choose("layout", "flame")
	qt.Check(t, qt.IsTrue(b.boxes()["DRAM"].Y > b.boxes()["ttnn.exp"].Y))
	b.Choose("layout", "icicle")
	b.Eval("(document.getElementById('canvas').focus(), true)", new(bool))
	b.Press("ArrowDown")
	b.Press("ArrowDown")
	qt.Check(t, qt.StringContains(b.Text("detail"), "<module>"))
	b.Choose("unit", "count")
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Count, 5))
	b.CheckQuiet()
}

// TestTheFlameGraphCanBeInverted: what many call is one box then, with its callers below.
func TestTheFlameGraphCanBeInverted(t *testing.T) {
	b := openPage(t, manyCallers().write(t)+whole)
	b.Choose("layout", "inverted")
	boxes := b.boxes()
	qt.Check(t, qt.Equals(boxes["ttnn.empty"].Bytes, 7*mib))
	qt.Check(t, qt.Equals(boxes["empty (helper.py:5)"].Bytes, 7*mib))
	for name, bytes := range map[string]uint64{"layer1 (model.py:11)": 2 * mib, "layer2 (model.py:12)": mib} {
		qt.Check(t, qt.Equals(boxes[name].Bytes, bytes), qt.Commentf("%s", name))
	}
	b.clickBox("layer1 (model.py:11)")
	qt.Check(t, qt.StringContains(b.Text("detail"), "28.6 % of its callee"))
	b.CheckQuiet()
}

func TestTheTableOfFunctions(t *testing.T) {
	b := openPage(t, manyCallers().write(t)+whole)
	b.Choose("layout", "table")
	b.Screenshot("functions")
	qt.Check(t, qt.DeepEquals(b.table("functions"), [][]string{
		{"8.0 MiB  50.0 %", "8.0 MiB  50.0 %", "ttnn.exp"},
		{"7.0 MiB  43.8 %", "7.0 MiB  43.8 %", "ttnn.empty"},
		{"1.0 MiB  6.3 %", "1.0 MiB  6.3 %", "ttnn.add"},
		{"0 B  0.0 %", "16.0 MiB  100.0 %", "<module>"},
		{"0 B  0.0 %", "13.0 MiB  81.3 %", "layer0"}, // each byte once
		{"0 B  0.0 %", "7.0 MiB  43.8 %", "empty"},
		{"0 B  0.0 %", "2.0 MiB  12.5 %", "layer1"},
		{"0 B  0.0 %", "1.0 MiB  6.3 %", "layer2"},
	}))
	b.Eval(`(document.querySelectorAll("#functions th button")[1].click(), true)`, new(bool))
	qt.Check(t, qt.Equals(b.table("functions")[0][2], "<module>"))
	b.Press("/")
	b.Write("helper")
	qt.Check(t, qt.DeepEquals(b.table("functions"), [][]string{{"0 B  0.0 %", "7.0 MiB  43.8 %", "empty"}}))
	qt.Check(t, qt.Equals(b.Text("matched"), "43.8 % found: 7.0 MiB"))

	// a function is searched in the graph
	b.Eval(`(document.querySelector("#functions td button").click(), true)`, new(bool))
	b.Settle()
	qt.Check(t, qt.Equals(b.Text("matched"), "43.8 % found: 7.0 MiB"))
	qt.Check(t, qt.IsTrue(b.boxes()["empty (helper.py:5)"].Found))
	b.CheckQuiet()
}

// TestTheAreasAreTheUse: in each column they add up to the use of the region, however many call sites
// there are; a click shows the stack.
func TestTheAreasAreTheUse(t *testing.T) {
	r := newRun()
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}}
	open.Open = new(event.Open)
	open.Open.Capacities[event.DRAM] = event.Capacity{Banks: 1, BytesPerBank: 1 << 30}
	r.apply(open)
	for i := range 100 {
		id := r.alloc(event.DRAM, uint64(1+i)<<10, 0x1000, stackOf(python(fmt.Sprintf("f%d", i), "/srv/model.py", 10+i)), 0)
		if i%2 == 0 {
			r.free(id)
		}
	}
	spike := r.alloc(event.DRAM, 4*mib, 0x1000, stackOf(python("spike", "/srv/model.py", 5)), 0)
	r.free(spike)
	b := openPage(t, r.write(t))
	var areas struct {
		Names   []string
		Columns int
	}
	b.Eval("ttmem.timeline.areas()", &areas)
	qt.Check(t, qt.Equals(areas.Columns, 1000))
	qt.Assert(t, qt.HasLen(areas.Names, 13))
	qt.Check(t, qt.Equals(areas.Names[12], "89 other call sites"))
	qt.Check(t, qt.SliceContains(areas.Names, "model.py:5 spike"))
	var drawn struct{ Areas, Use []uint64 }
	b.Eval("ttmem.timeline.sums()", &drawn)
	qt.Check(t, qt.DeepEquals(drawn.Areas, drawn.Use))
	b.Screenshot("areas")

	x, _ := b.at(152, 0)
	var y float64
	b.Eval(fmt.Sprintf("ttmem.timeline.areaY(%d)", 2*mib), &y)
	b.Mouse("mouseMoved", x+1, y, 0)
	b.Settle()
	qt.Check(t, qt.StringContains(b.Text("tip"), "model.py:5 spike"))
	b.Click(x+1, y)
	boxes := b.boxes()
	qt.Check(t, qt.Equals(boxes["spike (model.py:5)"].Width, boxes["DRAM"].Width))
	qt.Check(t, qt.StringContains(b.Text("about"), "DRAM of chip 0: 6.5 MiB of 1.0 GiB"))
	b.CheckQuiet()
}
