package export

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/e2e/browser"
	"ttmem/e2e/golden"
	"ttmem/tracer/event"
)

func flameGraph(t *testing.T, p *memory.Profile) string {
	t.Helper()
	var b strings.Builder
	_, err := FlameGraph(&b, p, Options{Begun: begun})
	qt.Assert(t, qt.IsNil(err))
	return b.String()
}

func pageData(t *testing.T, page string) string {
	t.Helper()
	_, data, ok := strings.Cut(page, `<script type="application/json" id="data">`)
	qt.Assert(t, qt.IsTrue(ok))
	data, _, ok = strings.Cut(data, "</script>")
	qt.Assert(t, qt.IsTrue(ok))
	return data
}

func TestFlameGraphDataMatchesTheGoldenFile(t *testing.T) {
	data := pageData(t, flameGraph(t, smallRun().state.Profile()))
	qt.Check(t, qt.IsTrue(json.Valid([]byte(data))))
	golden.Check(t, "small.flamegraph.json", data)
}

func TestHostileNamesStayInTheirPlace(t *testing.T) {
	r := smallRun()
	r.apply(event.Event{Kind: event.ProcessStart, PID: 1400, Comm: "</title><b>{{script}}", Start: &event.Start{Command: "</script>"}})
	r.alloc(1400, event.DRAM, 1, nil, 0)
	page := flameGraph(t, r.state.Profile())
	qt.Check(t, qt.Equals(strings.Count(page, "</script>"), 2))
	qt.Check(t, qt.Equals(strings.Count(page, "<img"), 0))
	qt.Check(t, qt.Equals(strings.Count(page, "</title>"), 1))
}

func TestAFlameGraphNeedsNothingElse(t *testing.T) {
	page := flameGraph(t, newRun().state.Profile())
	for _, sign := range []string{"http:", "https:", "src=", "@import", "url("} {
		qt.Check(t, qt.IsFalse(strings.Contains(page, sign)), qt.Commentf("%s", sign))
	}
	qt.Check(t, qt.IsTrue(json.Valid([]byte(pageData(t, page)))))
}

func TestNumbersAreGrouped(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567"} {
		qt.Check(t, qt.Equals(Grouped(n), want))
	}
}

// A page is a flame graph in a browser.
type page struct {
	*browser.Browser
	t testing.TB
}

func newBrowser(t testing.TB, width, height int) *page {
	return &page{browser.New(t, width, height), t}
}

// box is what the page tells of a box.
type box struct {
	Text                string
	X, Y, Width, Height float64
	Depth               int
	Bytes, Count        uint64
	Found               bool
}

func (b *page) boxes() map[string]box {
	b.t.Helper()
	var list []box
	b.Eval("ttmem.boxes()", &list)
	byText := make(map[string]box)
	for _, x := range list {
		byText[x.Text] = x
	}
	return byText
}

func (b *page) clickBox(text string) {
	b.t.Helper()
	x, ok := b.boxes()[text]
	qt.Assert(b.t, qt.IsTrue(ok), qt.Commentf("no box %q", text))
	b.Click(x.X+x.Width/2, x.Y+x.Height/2)
}

// openPage opens the flame graph of a profile in a browser.
func openPage(t *testing.T, width, height int, p *memory.Profile) (b *page, file string) {
	t.Helper()
	b = newBrowser(t, width, height)
	file = filepath.Join(t.TempDir(), "flame graph.html")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(flameGraph(t, p)), 0o644)))
	file = strings.ReplaceAll(file, " ", "%20")
	b.Open(file)
	return b, file
}

const (
	mib         = 1 << 20
	hostileName = `</script><img src=x onerror=alert(1)>`
)

func TestTheFlameGraphWorksInABrowser(t *testing.T) {
	b, _ := openPage(t, 1280, 800, smallRun().state.Profile())

	// the peak of DRAM: 2 x 64 MiB of weights, one without a stack, 3 hostile ones
	boxes := b.boxes()
	qt.Check(t, qt.Equals(boxes["DRAM"].Bytes, 132*mib))
	qt.Check(t, qt.Equals(boxes["DRAM"].Count, 4))
	qt.Check(t, qt.Equals(boxes["load (weights.py:31)"].Bytes, 128*mib))
	qt.Check(t, qt.Equals(boxes["[no stack]"].Bytes, mib))
	qt.Check(t, qt.Equals(boxes[hostileName+` ("é '.py:1)`].Bytes, 3*mib))
	share := boxes["load (weights.py:31)"].Width / boxes["DRAM"].Width
	qt.Check(t, qt.IsTrue(share > 0.969 && share < 0.970), qt.Commentf("%v", share))
	qt.Check(t, qt.Equals(b.Text("about"), "DRAM: 132.0 MiB in 4 objects live at the peak of DRAM of each device"))
	qt.Check(t, qt.Equals(b.Text("what"), "2 processes, 2 devices, 5 stacks, traced for 1.0 s from 2026-11-21 08:00:00 UTC"))
	b.Screenshot("small")

	// a tooltip tells all of a box
	x := boxes["load (weights.py:31)"]
	b.Mouse("mouseMoved", x.X+x.Width/2, x.Y+5, 0)
	b.Settle()
	tip := b.Text("tip")
	for _, want := range []string{"load", "/srv/models/weights.py:31", "Python", "128.0 MiB in 2 objects", "97.0 % of all"} {
		qt.Check(t, qt.StringContains(tip, want))
	}

	// a click zooms, Escape resets
	b.clickBox("load (weights.py:31)")
	zoomed := b.boxes()
	qt.Check(t, qt.Equals(zoomed["load (weights.py:31)"].Width, zoomed["DRAM"].Width))
	_, shown := zoomed["[no stack]"]
	qt.Check(t, qt.IsFalse(shown))
	qt.Check(t, qt.StringContains(b.Text("detail"), "/srv/models/weights.py:31"))
	b.Press("Escape")
	qt.Check(t, qt.DeepEquals(b.boxes(), boxes))

	// a search tells how much was found, each part once
	b.Press("/")
	b.Write("^(<module>|load)")
	qt.Check(t, qt.Equals(b.Text("matched"), "99.2 % found: 131.0 MiB"))
	qt.Check(t, qt.IsTrue(b.boxes()["load (weights.py:31)"].Found))
	b.Press("Escape")
	qt.Check(t, qt.Equals(b.Text("matched"), ""))
	b.Press("/")
	b.Write("weights\\.py:31")
	qt.Check(t, qt.Equals(b.Text("matched"), "97.0 % found: 128.0 MiB"))
	b.Press("Escape")
	b.Press("/")
	b.Write("(")
	qt.Check(t, qt.Equals(b.Text("matched"), "not a regular expression"))
	b.Press("Escape")

	// selections; each region is alone
	for region, want := range map[string]uint64{"L1": 512 << 10, "CB": 256 << 10, "KERNEL": 40 << 10, "DRAM": 132 * mib} {
		b.Choose("region", region)
		qt.Check(t, qt.Equals(b.boxes()[region].Bytes, want))
	}
	b.Choose("region", "L1")
	qt.Check(t, qt.Matches(b.Text("about"), `L1: 512.0 KiB in 1 object live at the peak of L1 on device 0: .* per core at .*`))
	b.Choose("region", "DRAM")
	b.Choose("device", "device 1")
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 67*mib))
	qt.Check(t, qt.Equals(b.Text("about"), "DRAM: 67.0 MiB in 2 objects live at the peak of DRAM on device 1: 67.0 MiB at 0.800 s"))
	b.Choose("process", "1300")
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 3*mib))
	b.Choose("amount", "live")
	qt.Check(t, qt.HasLen(b.boxes(), 1))
	b.Choose("process", "")
	b.Choose("device", "")
	qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 129*mib))
	b.Choose("amount", "allocated")
	b.Choose("unit", "count")
	b.Choose("split", "both")
	boxes = b.boxes()
	qt.Check(t, qt.Equals(boxes["python3 (1234)"].Count, 3))
	qt.Check(t, qt.Equals(boxes["python3 (1234)"].Depth, 1))
	qt.Check(t, qt.Equals(boxes["work;er  (1300)"].Count, 1))
	share = boxes["python3 (1234)"].Width / boxes["DRAM"].Width
	qt.Check(t, qt.IsTrue(share > 0.749 && share < 0.751), qt.Commentf("%v", share))

	// callers may be below
	b.Choose("layout", "flame")
	flame := b.boxes()
	qt.Check(t, qt.IsTrue(flame["DRAM"].Y > flame["python3 (1234)"].Y))
	b.clickBox("python3 (1234)")
	qt.Check(t, qt.Equals(b.boxes()["python3 (1234)"].Width, flame["DRAM"].Width))

	// keys move between boxes
	b.Press("Escape")
	b.Choose("layout", "icicle")
	b.Eval("(document.getElementById('canvas').focus(), true)", new(bool))
	b.Press("ArrowDown")
	b.Press("ArrowDown")
	b.Press("ArrowDown")
	qt.Check(t, qt.StringContains(b.Text("detail"), "device 0"))
	b.Press("Enter")
	qt.Check(t, qt.Equals(b.boxes()["device 0"].Width, b.boxes()["DRAM"].Width))
	b.CheckQuiet()
}

// TestNativeFramesAreHidden unless they are asked for, or there is no Python around them.
func TestNativeFramesAreHidden(t *testing.T) {
	r := smallRun()
	r.start(1400, "server", "server")
	r.alloc(1400, event.DRAM, 8<<20, stackOf(allocator(), ttnn("ttnn::empty", 0x88), event.Frame{Kind: event.Native, Name: "main", Module: "server"}), 2)
	b, _ := openPage(t, 1280, 800, r.state.Profile())
	boxes := b.boxes()
	_, native := boxes["ttnn::as_tensor"]
	qt.Check(t, qt.IsFalse(native))
	for _, name := range []string{"main", "ttnn::empty"} {
		qt.Check(t, qt.Equals(boxes[name].Bytes, 8*mib), qt.Commentf("%s", name))
	}
	b.Press("/")
	b.Write("ttnn::as_tensor")
	qt.Check(t, qt.Equals(b.Text("matched"), "found only in native frames"))
	b.Toggle("native")
	qt.Check(t, qt.Equals(b.Text("matched"), "91.4 % found: 128.0 MiB"))
	boxes = b.boxes()
	qt.Check(t, qt.Equals(boxes["ttnn::as_tensor"].Bytes, 128*mib))
	qt.Check(t, qt.Equals(boxes["ttnn::as_tensor"].Depth, boxes["load (weights.py:31)"].Depth+1))
	b.CheckQuiet()
}

// manyCallers allocate at one line, which is a helper.
func manyCallers() *run {
	r := newRun()
	r.start(7, "python3", "python3 model.py")
	for i, size := range []uint64{4, 2, 1} {
		r.alloc(7, event.DRAM, size<<20, stackOf(
			allocator(), ttnn("ttnn::empty", uint64(0x100+i)),
			python("empty", "/srv/helper.py", 5), python(fmt.Sprintf("layer%d", i), "/srv/model.py", 10+i), main,
		), 0)
	}
	r.alloc(7, event.DRAM, 1<<20, stackOf(allocator(), ttnn("ttnn::add", 0x200), python("layer0", "/srv/model.py", 20), main), 0)
	return r
}

// TestTheFlameGraphCanBeInverted: what many call is one box then, with its callers below.
func TestTheFlameGraphCanBeInverted(t *testing.T) {
	b, _ := openPage(t, 1280, 800, manyCallers().state.Profile())
	b.Choose("layout", "inverted")
	boxes := b.boxes()
	qt.Check(t, qt.Equals(boxes["empty (helper.py:5)"].Bytes, 7*mib))
	qt.Check(t, qt.Equals(boxes["empty (helper.py:5)"].Depth, 1))
	for name, bytes := range map[string]uint64{"layer0 (model.py:10)": 4 * mib, "layer1 (model.py:11)": 2 * mib, "layer2 (model.py:12)": mib} {
		qt.Check(t, qt.Equals(boxes[name].Bytes, bytes), qt.Commentf("%s", name))
		qt.Check(t, qt.Equals(boxes[name].Depth, 2))
	}
	qt.Check(t, qt.Equals(boxes["layer0 (model.py:20)"].Depth, 1))
	b.clickBox("layer1 (model.py:11)")
	qt.Check(t, qt.StringContains(b.Text("detail"), "28.6 % of what it called"))
	b.Press("Escape")
	b.Press("/")
	b.Write("layer")
	qt.Check(t, qt.Equals(b.Text("matched"), "100.0 % found: 8.0 MiB"))
	b.CheckQuiet()
}

// tableRows are the cells of the table of functions, without their places.
func (b *page) tableRows() (rows [][3]string) {
	b.t.Helper()
	b.Eval(`[...document.querySelectorAll("#functions tbody tr")].map(row => [row.cells[0].textContent, row.cells[1].textContent, row.cells[2].firstChild.textContent])`, &rows)
	return rows
}

func TestTheTableOfFunctions(t *testing.T) {
	r := manyCallers()
	again := python("layer0", "/srv/model.py", 10)
	r.alloc(7, event.DRAM, 8<<20, stackOf(allocator(), ttnn("ttnn::exp", 0x300), again, again, main), 0)
	b, file := openPage(t, 1280, 800, r.state.Profile())
	b.Choose("layout", "table")
	b.Screenshot("table")
	qt.Check(t, qt.DeepEquals(b.tableRows(), [][3]string{
		{"9.0 MiB  56.3 %", "13.0 MiB  81.3 %", "layer0"},
		{"7.0 MiB  43.8 %", "7.0 MiB  43.8 %", "empty"},
		{"0 B  0.0 %", "16.0 MiB  100.0 %", "<module>"},
		{"0 B  0.0 %", "2.0 MiB  12.5 %", "layer1"},
		{"0 B  0.0 %", "1.0 MiB  6.3 %", "layer2"},
	}))
	var clicked bool
	b.Eval(`(document.querySelectorAll("#functions th button")[1].click(), true)`, &clicked)
	qt.Check(t, qt.Equals(b.tableRows()[0][2], "<module>"))
	b.Press("/")
	b.Write("helper")
	qt.Check(t, qt.DeepEquals(b.tableRows(), [][3]string{{"7.0 MiB  43.8 %", "7.0 MiB  43.8 %", "empty"}}))
	qt.Check(t, qt.Equals(b.Text("matched"), "43.8 % found: 7.0 MiB"))

	// a function is searched in the graph
	b.Eval(`(document.querySelector("#functions td button").click(), true)`, &clicked)
	b.Settle()
	qt.Check(t, qt.Equals(b.Text("matched"), "43.8 % found: 7.0 MiB"))
	qt.Check(t, qt.IsTrue(b.boxes()["empty (helper.py:5)"].Found))
	b.Call("Page.navigate", map[string]any{"url": "about:blank"})
	b.Open(file + "#layout=table&unit=count")
	qt.Check(t, qt.Equals(b.tableRows()[0], [3]string{"3 objects  60.0 %", "3 objects  60.0 %", "empty"}))
	b.CheckQuiet()
}

// TestTheAddressHasTheView: what it is opened with is shown, and Back undoes a zoom.
func TestTheAddressHasTheView(t *testing.T) {
	b, file := openPage(t, 1280, 800, smallRun().state.Profile())
	hash := func() (hash string) { b.Eval("location.hash", &hash); return hash }
	qt.Check(t, qt.Equals(hash(), ""))
	b.Choose("split", "process")
	b.Toggle("native")
	b.clickBox("work;er  (1300)")
	b.Press("/")
	b.Write("<img|&#")
	b.clickBox(hostileName + ` ("é '.py:1)`)
	want, matched, address := b.boxes(), b.Text("matched"), hash()
	qt.Check(t, qt.Equals(matched, "100.0 % found: 3.0 MiB"))

	b.Call("Page.navigate", map[string]any{"url": "about:blank"})
	b.Open(file + address)
	qt.Check(t, qt.DeepEquals(b.boxes(), want))
	qt.Check(t, qt.Equals(b.Text("matched"), matched))
	qt.Check(t, qt.Equals(hash(), address))

	b.clickBox("work;er  (1300)")
	qt.Check(t, qt.Not(qt.Equals(hash(), address)))
	b.Eval("(history.back(), true)", new(bool))
	b.Wait(fmt.Sprintf("location.hash === %q", address))
	b.Settle()
	qt.Check(t, qt.DeepEquals(b.boxes(), want))

	// an address from elsewhere selects nothing that is not there
	for _, odd := range []string{"#region=SRAM&split=%3Cimg%3E&zoom=1/2/99", "#zoom=%25E0%25A4%25A", "#search=(&native=7&layout=", "#%00=%ff&zoom=-1"} {
		b.Call("Page.navigate", map[string]any{"url": "about:blank"})
		b.Open(file + odd)
		qt.Check(t, qt.Equals(b.boxes()["DRAM"].Bytes, 132*mib), qt.Commentf("%s", odd))
	}
	b.CheckQuiet()
}

// TestHostileNamesAreTextInABrowser: in the graph, its tooltip, the table and the address.
func TestHostileNamesAreTextInABrowser(t *testing.T) {
	r := newRun()
	names := []string{hostileName, "\u202eevil\u2066", "\u009b31mred\u0085", "\x1b[2J", `"onclick="alert(1)`, "javascript:alert(1)", "constructor", "__proto__", "&lt;b&gt;"}
	for i, name := range names {
		r.start(100+i, name, name)
		r.alloc(100+i, event.DRAM, 1<<20, stackOf(allocator(), event.Frame{Kind: event.Native, Name: name, Module: name}, python(name, "/srv/"+name+".py", 1), main), i)
	}
	b, _ := openPage(t, 1280, 800, r.state.Profile())
	var elements, after int
	count := `document.querySelectorAll("img, a, iframe, [onclick], [onerror]").length`
	b.Eval(count, &elements)
	b.Choose("split", "both")
	for text := range b.boxes() {
		qt.Check(t, qt.Equals(text, event.Printable(text)))
	}
	for _, x := range b.boxes() {
		b.Mouse("mouseMoved", x.X+x.Width/2, x.Y+5, 0)
		b.Settle()
		break
	}
	b.Choose("layout", "inverted")
	b.Toggle("native")
	qt.Check(t, qt.IsTrue(b.boxes()["<module> (demo.py:212)"].Depth > 0))
	b.Choose("layout", "table")
	rows := b.tableRows()
	qt.Check(t, qt.HasLen(rows, 2*len(names)+1+len(allocator())))
	for _, row := range rows {
		qt.Check(t, qt.Equals(row[2], event.Printable(row[2])))
	}
	b.Eval(`(document.querySelector("#functions td button").click(), true)`, new(bool))
	b.Settle()
	b.Eval(count, &after)
	qt.Check(t, qt.Equals(after, elements))
	b.CheckQuiet()
}

// modelRun is as of a model with layers on a mesh: what one would show. With
// many variants it has that many stacks.
func modelRun(variants int) *run {
	r := newRun()
	random := rand.New(rand.NewPCG(1, 2))
	r.start(4242, "python3", "python3 demo.py --layers 32")
	address := uint64(0x90000)
	ops := []struct {
		name string
		size uint64
	}{{"ttnn::matmul", 900}, {"ttnn::add", 180}, {"ttnn::softmax", 260}, {"ttnn::layer_norm", 140}, {"ttnn::reshape", 60}}
	parts := []struct {
		name, file string
		line       int
	}{
		{"attention", "/srv/models/attention.py", 88}, {"mlp", "/srv/models/mlp.py", 41},
		{"norm", "/srv/models/norm.py", 17}, {"embed", "/srv/models/embedding.py", 29},
	}
	generate := python("generate", "/srv/models/generator.py", 310)
	var live []uint64
	for v := range variants {
		part, op := parts[random.IntN(random.IntN(4)+1)], ops[random.IntN(len(ops))]
		layer := random.IntN(8)
		python := []event.Frame{
			python(part.name, part.file, part.line+v%23),
			python("forward", "/srv/models/decoder.py", 60+layer), python("forward", "/srv/models/transformer.py", 214),
			generate, main,
		}
		region, size := event.L1, op.size<<10
		if v%3 == 0 {
			region, size = event.DRAM, op.size<<14
			python = []event.Frame{python[0], {Kind: event.Python, Name: "load_layer", File: "/srv/models/weights.py", Line: 70 + layer}, main}
		}
		// the further apart the addresses, the more stacks
		near := ttnn(op.name, address)
		if v >= 1000 {
			near.Name = fmt.Sprintf("%s_variant_%d", op.name, v)
		}
		stack := stackOf(allocator(), ttnn("ttnn::operation::run", address), near, python)
		id := r.alloc(4242, region, size/4+random.Uint64N(size), stack, []int{0, 1, 2, 3}[:1+3*(v%2)]...)
		if live = append(live, id); random.IntN(3) == 0 {
			i := random.IntN(len(live))
			r.free(4242, live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		}
	}
	return r
}

var picture = flag.String("picture", "", "write the picture of the flame graph of a model to the PNG `file`")

func TestAFlameGraphOfAModelCanBeShown(t *testing.T) {
	b := newBrowser(t, 1440, 720)
	file := filepath.Join(t.TempDir(), "model.html")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(flameGraph(t, modelRun(900).state.Profile())), 0o644)))
	b.Open(file)
	if *picture != "" {
		b.WritePicture(*picture)
	}
	b.Screenshot("model_light")
	b.Dark(true)
	b.Screenshot("model_dark")
	b.Press("/")
	b.Write("softmax")
	b.Screenshot("model_search")
	b.Press("Escape")
	b.Choose("layout", "flame")
	b.Choose("split", "both")
	module := b.boxes()["<module> (demo.py:212)"]
	b.Mouse("mouseMoved", module.X+module.Width/2, module.Y+8, 0)
	b.Settle()
	b.Screenshot("model_flame")
	b.Dark(false)
	b.Choose("layout", "icicle")
	b.Choose("split", "")
	b.Choose("region", "L1")
	b.Toggle("native")
	b.clickBox("forward (decoder.py:60)")
	b.Screenshot("model_zoomed")
	b.Choose("layout", "table")
	b.Screenshot("model_table")
	b.Choose("layout", "inverted")
	b.Screenshot("model_inverted")
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": 420, "height": 800, "deviceScaleFactor": 2, "mobile": true,
	})
	b.Settle()
	b.Screenshot("model_phone")
	qt.Check(t, qt.HasLen(b.Complaints, 0))
}

// largeFlameGraph opens the flame graph of a model with many stacks and changes it in all ways. It
// returns the processor time of each step of the page.
func largeFlameGraph(t testing.TB, variants int) (steps []time.Duration) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "large.html")
	f, err := os.Create(file)
	qt.Assert(t, qt.IsNil(err))
	stacks, err := FlameGraph(f, modelRun(variants).state.Profile(), Options{})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(f.Close()))
	qt.Check(t, qt.IsTrue(stacks > variants*19/20), qt.Commentf("%d stacks", stacks))

	b := newBrowser(t, 1440, 900)
	b.Open(file)
	steps = append(steps, b.CPU())
	var n int
	b.Eval("ttmem.nodes()", &n)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"zoom", func() { b.clickBox("<module> (demo.py:212)") }},
		{"native frames", func() { b.Toggle("native") }},
		{"another value", func() { b.Choose("amount", "allocated") }},
		{"search", func() { b.Press("/"); b.Write("softmax") }},
		{"split", func() { b.Choose("split", "both") }},
		{"inverted", func() { b.Choose("layout", "inverted") }},
		{"table", func() { b.Choose("layout", "table") }},
	} {
		before := b.CPU()
		step.do()
		steps = append(steps, b.CPU()-before)
		t.Logf("%s of %d frames: %v", step.name, n, steps[len(steps)-1])
	}
	qt.Check(t, qt.HasLen(b.Complaints, 0))
	return steps
}

// What a step of the page costs grows no faster than the number of stacks. `make bench` measures it
// with 60,000: a user has not many more.
func TestALargeFlameGraph(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds: not with -short")
	}
	const stacks = 40_000
	few, all := largeFlameGraph(t, stacks/8), largeFlameGraph(t, stacks)
	t.Logf("%v for an eighth of the stacks, %v for all", few, all)
	for i := range all {
		qt.Check(t, qt.IsTrue(all[i] < 24*max(few[i], 20*time.Millisecond)), qt.Commentf("%v and %v", few[i], all[i]))
	}
}

// BenchmarkLargeFlameGraph is part of `make bench`.
func BenchmarkLargeFlameGraph(b *testing.B) {
	for b.Loop() {
		steps := largeFlameGraph(b, 60_000)
		b.ReportMetric(steps[0].Seconds()*1000, "open-ms")
		b.ReportMetric(slices.Max(steps[1:]).Seconds()*1000, "step-ms")
	}
}

// BenchmarkExports writes a profile of 20,000 stacks.
func BenchmarkExports(b *testing.B) {
	p := modelRun(20_000).state.Profile()
	for name, write := range map[string]func(io.Writer, *memory.Profile, Options) (int, error){
		"folded": Folded, "pprof": Pprof, "flamegraph": FlameGraph,
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := write(io.Discard, p, Options{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
