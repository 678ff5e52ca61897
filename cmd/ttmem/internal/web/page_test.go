package web

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/browser"
	"ttmem/tracer/event"
)

const (
	second      = 1_000_000_000
	mib         = 1 << 20
	hostileName = `</script><img src=x onerror=alert(1)>`
)

// A run is a recording in the making, each event a tenth of a second after the one before.
type run struct {
	state   *aggregate.State
	page    *Page
	now, id uint64
	handle  func(*event.Event)
}

func newRun() *run {
	r := &run{state: aggregate.New(), page: New(), now: 1000 * second}
	r.handle = r.state.Completed(func(e *event.Event) { r.page.Event(e, r.state) })
	return r
}

func (r *run) apply(e event.Event) {
	r.now += second / 10
	e.TimeNs = r.now
	r.handle(&e)
}

func (r *run) alloc(region event.Region, bytes, address uint64, stack *event.Stack, devices ...int) uint64 {
	r.id++
	r.apply(event.Event{
		Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: r.id, Devices: devices, Region: region, Address: address,
		SizeBytes: bytes, BytesPerBank: bytes, Banks: 1, Stack: stack,
	})
	return r.id
}

func (r *run) free(id uint64) {
	r.apply(event.Event{Kind: event.Free, PID: 7, BufferID: id, Reason: event.ReasonExplicit})
}

func python(name, file string, line int) event.Frame {
	return event.Frame{Kind: event.Python, Name: name, Symbol: name, File: file, Line: line}
}

func stackOf(frames ...event.Frame) *event.Stack {
	return event.StackOf(append(frames, python("<module>", "/srv/model.py", 1)))
}

// write writes the page of a run.
func (r *run) write(t testing.TB) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "page.html")
	out, err := os.Create(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(r.page.Write(out, r.state, Options{Of: "model.ttmem"})))
	qt.Assert(t, qt.IsNil(out.Close()))
	return file
}

// smallRun has a process that loads weights on two chips, works in L1 on one, and leaks.
func smallRun() *run {
	r := newRun()
	r.apply(event.Event{Kind: event.ProcessStart, PID: 7, Comm: "python3", Start: &event.Start{Command: "python3 model.py"}})
	open := event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0, 1}, Mesh: true}
	open.Open = new(event.Open)
	open.Open.Capacities[event.DRAM] = event.Capacity{Banks: 1, BytesPerBank: 1 << 30}
	open.Open.Capacities[event.L1] = event.Capacity{Banks: 1, BytesPerBank: 1 << 20, Base: 1 << 16}
	r.apply(open)
	weights := stackOf(python("load", "/srv/weights.py", 31))
	r.alloc(event.DRAM, 64*mib, 0x1000, weights, 0, 1) // row 3
	r.alloc(event.DRAM, 64*mib, 0x5000000, weights, 0, 1)
	r.apply(event.Event{Kind: event.Mark, Cause: "warm"}) // row 5
	a := r.alloc(event.L1, 512<<10, 1<<16+1<<19, stackOf(python("forward", "/srv/model.py", 20)), 0)
	r.alloc(event.L1, 64<<10, 1<<16, stackOf(python("keep", "/srv/model.py", 30)), 0)
	r.free(a)                                                                               // row 8
	r.alloc(event.DRAM, mib, 0x9000000, stackOf(python(hostileName, `/srv/"é '.py`, 1)), 1) // row 9
	return r
}

type tab struct {
	*browser.Browser
	t testing.TB
}

func openPage(t testing.TB, file string) *tab {
	b := &tab{browser.New(t, 1280, 900), t}
	b.Open(file)
	return b
}

type box struct {
	Text                string
	X, Y, Width, Height float64
	Bytes, Count        uint64
	Found               bool
}

func (b *tab) boxes() map[string]box {
	b.t.Helper()
	var list []box
	b.Eval("ttmem.boxes()", &list)
	byText := make(map[string]box)
	for _, x := range list {
		byText[x.Text] = x
	}
	return byText
}

// at returns the pixel of a row on a lane of the timeline.
func (b *tab) at(row, lane int) (x, y float64) {
	b.t.Helper()
	var p [2]float64
	b.Eval(fmt.Sprintf("[ttmem.timeline.xOf(%d), ttmem.timeline.laneY(%d)]", row, lane), &p)
	return p[0], p[1]
}

func (b *tab) drag(from, to, lane int) {
	b.t.Helper()
	x, y := b.at(from, lane)
	until, _ := b.at(to, lane)
	b.Mouse("mousePressed", x+1, y, 1)
	b.Mouse("mouseMoved", (x+until)/2, y, 0)
	b.Mouse("mouseMoved", until+1, y, 0)
	b.Mouse("mouseReleased", until+1, y, 1)
	b.Settle()
}

func (b *tab) clickRow(row, lane int) {
	b.t.Helper()
	x, y := b.at(row, lane)
	b.Click(x+1, y)
}

func (b *tab) hash() (hash string) {
	b.t.Helper()
	b.Eval("location.hash", &hash)
	return hash
}

// table returns the texts of the cells of a table.
func (b *tab) table(id string) (rows [][]string) {
	b.t.Helper()
	b.Eval(fmt.Sprintf("[...document.querySelectorAll('#%s tbody tr')].map(row => [...row.cells].map(c => (c.firstElementChild || c).textContent))", id), &rows)
	return rows
}

// TestEverythingFollowsTheMouse selects a moment and a range: flame graph, call sites and
// addresses are of what is selected.
func TestEverythingFollowsTheMouse(t *testing.T) {
	b := openPage(t, smallRun().write(t))
	b.Screenshot("page")
	const chip0, chip1, l1 = 0, 1, 2 // lanes

	// at first, the peak nearest to its capacity
	qt.Check(t, qt.Equals(b.Text("about"), "At +0.600000 s, after event 7 · L1 per core of chip 0: 576.0 KiB of 1.0 MiB, 56.3 % · peak of L1 on chip 0"))
	qt.Check(t, qt.Equals(b.boxes()["L1 per core"].Bytes, 576<<10))
	qt.Check(t, qt.Equals(b.boxes()["forward (model.py:20)"].Bytes, 512<<10))

	// a click is a moment, and selects the lane
	b.clickRow(3, chip0)
	qt.Check(t, qt.Equals(b.Text("about"), "At +0.200000 s, after event 3 · DRAM of chip 0: 64.0 MiB of 1.0 GiB, 6.3 %"))
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 64*mib))
	b.Choose("chip", "")
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 128*mib))
	qt.Check(t, qt.StringContains(b.Text("about"), "DRAM of chips 0-1 together: 128.0 MiB of 2.0 GiB"))

	// a range: what was allocated in it, what of that is live after it, and what is live then
	b.drag(5, 8, l1)
	qt.Check(t, qt.StringContains(b.Text("about"), "From +0.400000 s to +0.700000 s: 3 events"))
	qt.Check(t, qt.Equals(b.boxes()["L1 per core allocated in the range"].Bytes, 576<<10))
	qt.Check(t, qt.Equals(b.boxes()["L1 per core allocated in the range"].Count, 2))
	b.Choose("amount", "peak")
	qt.Check(t, qt.Equals(b.boxes()["L1 per core live at the peak in the range"].Bytes, 576<<10))
	b.Choose("amount", "survived")
	qt.Check(t, qt.Equals(b.boxes()["L1 per core live after the range"].Bytes, 64<<10))
	_, freed := b.boxes()["forward (model.py:20)"]
	qt.Check(t, qt.IsFalse(freed))
	b.Press("2")
	qt.Check(t, qt.DeepEquals(b.table("siteTable"), [][]string{
		{"64.0 KiB", "1", "64.0 KiB", "1", "64.0 KiB", "1", "model.py:30 keep"},
		{"0 B", "0", "512.0 KiB", "1", "0 B", "0", "model.py:20 forward"},
	}))
	// another column sorts
	b.Eval("(document.querySelectorAll('#siteTable th button')[2].click(), true)", new(bool))
	qt.Check(t, qt.Equals(b.table("siteTable")[0][6], "model.py:20 forward"))
	b.Screenshot("sites")

	// the address map, and its scrubber
	b.Press("3")
	type block struct {
		Address, Bytes uint64
		Name           string
	}
	var blocks []block
	b.Eval("ttmem.map.blocks()", &blocks)
	qt.Check(t, qt.DeepEquals(blocks, []block{{1 << 16, 64 << 10, "model.py:30 keep"}}))
	b.Eval("(() => { const s = document.getElementById('scrubber'); s.value = 7; s.dispatchEvent(new Event('input')); return true; })()", new(bool))
	b.Settle()
	b.Eval("ttmem.map.blocks()", &blocks)
	qt.Check(t, qt.HasLen(blocks, 2))
	qt.Check(t, qt.StringContains(b.Text("about"), "live at +0.600000 s"))
	b.Screenshot("addresses")

	// a call site of the table is shown in the graph
	b.Press("2")
	b.Eval("(document.querySelector('#siteTable td button').click(), true)", new(bool))
	b.Settle()
	x := b.boxes()
	qt.Check(t, qt.Equals(x["keep (model.py:30)"].Width, x["L1 per core live after the range"].Width))

	// the same address shows the same
	want, hash, file := b.boxes(), b.hash(), ""
	b.Eval("location.pathname", &file)
	b.Call("Page.navigate", map[string]any{"url": "about:blank"})
	b.Open(file + hash)
	qt.Check(t, qt.DeepEquals(b.boxes(), want))
	qt.Check(t, qt.Equals(b.hash(), hash))
	for _, odd := range []string{"#at=99999999", "#range=7-3&region=SRAM&view=%3Cimg%3E", "#at=-1&chip=9&search=(", "#range=1-&at=x&zoom=%25E0%25A4%25A"} {
		b.Call("Page.navigate", map[string]any{"url": "about:blank"})
		b.Open(file + odd)
	}
	b.CheckQuiet()
}

func TestKeysAndSearch(t *testing.T) {
	b := openPage(t, smallRun().write(t))
	b.Eval("(document.getElementById('overlay').focus(), true)", new(bool))
	b.Press("Home")
	qt.Check(t, qt.StringContains(b.Text("about"), "after event 0 "))
	b.Press("ArrowRight")
	qt.Check(t, qt.StringContains(b.Text("about"), "after event 1 "))
	b.Press("n") // the next peak, mark or failure
	qt.Check(t, qt.StringContains(b.Text("about"), "after event 4 "))
	b.Press("n")
	qt.Check(t, qt.StringContains(b.Text("about"), "mark warm"))
	b.Press("End")
	b.Press("ArrowUp") // another lane
	b.Choose("region", "DRAM")
	b.Choose("chip", "")
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 257*mib))

	b.Press("/")
	b.Write("weights")
	qt.Check(t, qt.Equals(b.Text("matched"), "99.6 % found: 256.0 MiB"))
	qt.Check(t, qt.IsTrue(b.boxes()["load (weights.py:31)"].Found))
	b.Press("Escape")
	b.Press("2")
	qt.Check(t, qt.HasLen(b.table("siteTable"), 2))
	b.Press("/")
	b.Write("weights")
	qt.Check(t, qt.HasLen(b.table("siteTable"), 1))
	b.Write("(")
	qt.Check(t, qt.Equals(b.Text("matched"), "not a regular expression"))
	b.Press("Escape")
	var light, dark []string // of the page and of the timeline
	const colors = "[getComputedStyle(document.body).backgroundColor, ttmem.timeline.draw() || document.getElementById('lanes').getContext('2d').getImageData(0, 0, 1, 1).data.join()]"
	b.Eval(colors, &light)
	b.Dark(true)
	b.Eval(colors, &dark)
	qt.Check(t, qt.DeepEquals(light, []string{"rgb(255, 255, 255)", "255,255,255,255"}))
	qt.Check(t, qt.DeepEquals(dark, []string{"rgb(18, 22, 29)", "18,22,29,255"}))
	b.Screenshot("dark")
	b.CheckQuiet()
}

// TestAPageWithoutAllocations has nothing to show, and no error.
func TestAPageWithoutAllocations(t *testing.T) {
	r := newRun()
	r.apply(event.Event{Kind: event.ProcessStart, PID: 7, Comm: "python3", Start: &event.Start{Command: "python3 model.py"}})
	b := &tab{browser.New(t, 1280, 900), t}
	b.Call("Page.navigate", map[string]any{"url": "file://" + r.write(t)})
	b.Wait("window.ttmem")
	for _, key := range []string{"1", "2", "3", "4", "5", "6", "n", "/"} {
		b.Press(key)
	}
	qt.Check(t, qt.StringContains(b.Text("about"), "From +0.000000 s to +0.000000 s"))
	b.CheckQuiet()
}

// TestThePageSaysWhoHoldsBuffers in the table of owners, with the call sites, and in the address
// map. A search finds owners.
func TestThePageSaysWhoHoldsBuffers(t *testing.T) {
	r := smallRun()
	hold := func(id uint64, path, tensor string) {
		r.apply(event.Event{Kind: event.Owner, PID: 7, BufferID: id, Cause: path, Message: tensor})
	}
	hold(1, "first", "bf16[32,32] TILE")
	hold(1, "model.layers[0].wq", "bf16[32,32] TILE") // the newest counts, for the whole life
	hold(2, "model.layers[1].wq", "bf16[32,32] TILE")
	hold(4, hostileName, hostileName)
	hold(4, "", "")
	hold(3, "freed", "")
	r.alloc(event.DRAM, mib, 0xa000000, stackOf(event.Frame{Kind: event.Native, Name: "tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries"}), 0)
	b := openPage(t, r.write(t)+"#at=4&region=DRAM&chip=0")
	b.Press("2")
	b.Choose("by", "owner")
	qt.Check(t, qt.DeepEquals(b.table("siteTable"), [][]string{{"128.0 MiB", "2", "model.layers[*].wq"}}))
	b.Press("/")
	b.Write("32,32")
	qt.Check(t, qt.HasLen(b.table("siteTable"), 1))
	b.Choose("by", "site")
	qt.Check(t, qt.StringContains(b.Text("siteTable"), "held by model.layers[*].wq · bf16[32,32] TILE"))
	qt.Check(t, qt.HasLen(b.table("siteTable"), 1))
	b.Press("Escape")

	b.Choose("by", "class") // which the call stacks of tensors do not tell here, but their owners
	b.Press("End")
	qt.Check(t, qt.DeepEquals(b.table("siteTable"), [][]string{{"128.0 MiB", "2", "tensor"}, {"1.0 MiB", "1", "kernel binaries"}}))
	b.Press("/")
	b.Write("binaries")
	qt.Check(t, qt.DeepEquals(b.table("siteTable"), [][]string{{"1.0 MiB", "1", "kernel binaries"}}))
	b.Press("Escape")

	b.Choose("region", "L1")
	b.Choose("by", "owner")
	b.Press("End")
	qt.Check(t, qt.DeepEquals(b.table("siteTable"), [][]string{{"64.0 KiB", "1", hostileName}}))
	b.Press("3")
	var x, y float64
	b.Eval("document.getElementById('map').getBoundingClientRect().x", &x)
	b.Eval("document.getElementById('map').getBoundingClientRect().y", &y)
	b.Mouse("mouseMoved", x+5, y+5, 0)
	b.Settle()
	qt.Check(t, qt.StringContains(b.Text("tip"), "held by "+hostileName+" · "+hostileName))
	var images int
	b.Eval("document.querySelectorAll('img').length", &images)
	qt.Check(t, qt.Equals(images, 0))
	b.Screenshot("owners")
	b.CheckQuiet()
}

// TestHostileNamesAreText in the flame graph, the tables, the tooltips and the title.
func TestHostileNamesAreText(t *testing.T) {
	r := smallRun()
	r.apply(event.Event{Kind: event.ProcessStart, PID: 8, Comm: hostileName, Start: &event.Start{Command: hostileName}})
	r.apply(event.Event{Kind: event.Mark, Cause: hostileName})
	b := openPage(t, r.write(t))
	count := "document.querySelectorAll('img, a, iframe, [onclick], [onerror]').length"
	var before, after int
	b.Eval(count, &before)
	b.Press("n")
	b.Eval("(document.getElementById('overlay').focus(), true)", new(bool))
	b.Press("End")
	b.Choose("region", "DRAM")
	b.Choose("chip", "1")
	name := hostileName + ` ("é '.py:1)`
	qt.Check(t, qt.Equals(b.boxes()[name].Bytes, mib))
	x := b.boxes()[name]
	b.Mouse("mouseMoved", x.X+x.Width/2, x.Y+5, 0)
	b.Settle()
	qt.Check(t, qt.StringContains(b.Text("tip"), hostileName))
	b.Press("2")
	qt.Check(t, qt.Equals(b.table("siteTable")[1][2], `"é '.py:1 `+hostileName))
	b.Press("3")
	b.Eval(count, &after)
	qt.Check(t, qt.Equals(after, before))
	b.CheckQuiet()
}
