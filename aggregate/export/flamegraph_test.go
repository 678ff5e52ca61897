package export

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
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

func TestTheDataOfAFlameGraphLooksLikeTheGoldenFile(t *testing.T) {
	data := pageData(t, flameGraph(t, smallRun().state.Profile()))
	qt.Check(t, qt.IsTrue(json.Valid([]byte(data))))
	checkGolden(t, "small.flamegraph.json", data)
}

func TestHostileNamesStayInTheirPlace(t *testing.T) {
	r := smallRun()
	r.apply(event.Event{Kind: event.ProcessStart, PID: 1400, Comm: "</title><b>{{script}}", Command: "</script>"})
	r.alloc(1400, event.DRAM, 1, nil, 0)
	page := flameGraph(t, r.state.Profile())
	qt.Check(t, qt.Equals(strings.Count(page, "</script>"), 3))
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

// box is what the page tells of a box.
type box struct {
	Text                string
	X, Y, Width, Height float64
	Depth               int
	Bytes, Count        uint64
	Found               bool
}

func (b *browser) boxes() map[string]box {
	b.t.Helper()
	var list []box
	b.eval("ttmem.boxes()", &list)
	byText := make(map[string]box)
	for _, x := range list {
		byText[x.Text] = x
	}
	return byText
}

func (b *browser) clickBox(text string) {
	b.t.Helper()
	x, ok := b.boxes()[text]
	qt.Assert(b.t, qt.IsTrue(ok), qt.Commentf("no box %q", text))
	b.click(x.X+x.Width/2, x.Y+x.Height/2)
}

func TestTheFlameGraphWorksInABrowser(t *testing.T) {
	b := newBrowser(t, 1280, 800)
	file := filepath.Join(t.TempDir(), "flame graph.html")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(flameGraph(t, smallRun().state.Profile())), 0o644)))
	b.open(strings.ReplaceAll(file, " ", "%20"))

	const mib = 1 << 20
	boxes := b.boxes()
	// the peak: 2 x 64 MiB of weights, one without a stack, 3 hostile ones, 512 KiB of L1, 256 of CB, 40 of kernels
	all := uint64(132*mib + 512<<10 + 256<<10 + 40<<10)
	qt.Check(t, qt.Equals(boxes["all"].Bytes, all))
	qt.Check(t, qt.Equals(boxes["all"].Count, 7))
	qt.Check(t, qt.Equals(boxes["DRAM"].Bytes, 132*mib))
	qt.Check(t, qt.Equals(boxes["load (weights.py:31)"].Bytes, 128*mib))
	qt.Check(t, qt.Equals(boxes[`</script><img src=x onerror=alert(1)> ("é '.py:1)`].Bytes, 3*mib))
	share := boxes["DRAM"].Width / boxes["all"].Width
	qt.Check(t, qt.IsTrue(share > 0.993 && share < 0.995), qt.Commentf("%v", share))
	qt.Check(t, qt.Equals(b.text("about"), "132.8 MiB in 7 objects live at the peak of each region of each device"))
	qt.Check(t, qt.Equals(b.text("what"), "2 processes, 2 devices, 5 stacks, traced for 1.0 s from 2026-11-21 08:00:00 UTC"))
	b.screenshot("small")

	// a tooltip tells all of a box
	x := boxes["load (weights.py:31)"]
	b.mouse("mouseMoved", x.X+x.Width/2, x.Y+5, 0)
	b.settle()
	tip := b.text("tip")
	for _, want := range []string{"load", "/srv/models/weights.py:31", "Python", "128.0 MiB in 2 objects", "96.4 % of all"} {
		qt.Check(t, qt.StringContains(tip, want))
	}

	// a click zooms, Escape resets
	b.clickBox("load (weights.py:31)")
	zoomed := b.boxes()
	qt.Check(t, qt.Equals(zoomed["load (weights.py:31)"].Width, zoomed["all"].Width))
	_, shown := zoomed["[no stack]"]
	qt.Check(t, qt.IsFalse(shown))
	qt.Check(t, qt.StringContains(b.text("detail"), "/srv/models/weights.py:31"))
	b.press("Escape")
	qt.Check(t, qt.DeepEquals(b.boxes(), boxes))

	// a search tells how much was found, each part once
	b.press("/")
	b.write("^(forward|ttnn::matmul)")
	qt.Check(t, qt.Equals(b.text("matched"), "0.59 % found: 808.0 KiB"))
	qt.Check(t, qt.IsTrue(b.boxes()["forward (model.py:123)"].Found))
	b.press("Escape")
	qt.Check(t, qt.Equals(b.text("matched"), ""))
	b.press("/")
	b.write("weights\\.py:31")
	qt.Check(t, qt.Equals(b.text("matched"), "96.4 % found: 128.0 MiB"))
	b.press("Escape")
	b.press("/")
	b.write("(")
	qt.Check(t, qt.Equals(b.text("matched"), "not a regular expression"))
	b.press("Escape")

	// selections
	b.choose("device", "device 1")
	qt.Check(t, qt.Equals(b.boxes()["all"].Bytes, 67*mib))
	qt.Check(t, qt.Equals(b.text("about"), "67.0 MiB in 2 objects live at the peak of DRAM on device 1: 67.0 MiB at 0.800 s"))
	b.choose("process", "1300")
	qt.Check(t, qt.Equals(b.boxes()["all"].Bytes, 3*mib))
	b.choose("amount", "live")
	qt.Check(t, qt.HasLen(b.boxes(), 1))
	b.choose("process", "")
	b.choose("device", "")
	qt.Check(t, qt.Equals(b.boxes()["all"].Bytes, 129*mib+(256+40)<<10))
	b.choose("amount", "allocated")
	b.choose("unit", "count")
	b.choose("split", "all")
	boxes = b.boxes()
	qt.Check(t, qt.Equals(boxes["python3 (1234)"].Count, 6))
	qt.Check(t, qt.Equals(boxes["python3 (1234)"].Depth, 1))
	qt.Check(t, qt.Equals(boxes["work;er  (1300)"].Count, 1))
	share = boxes["python3 (1234)"].Width / boxes["all"].Width
	qt.Check(t, qt.IsTrue(share > 0.857 && share < 0.858), qt.Commentf("%v", share))

	// flame has the root below
	b.choose("layout", "flame")
	flame := b.boxes()
	qt.Check(t, qt.IsTrue(flame["all"].Y > flame["python3 (1234)"].Y))
	b.clickBox("python3 (1234)")
	qt.Check(t, qt.Equals(b.boxes()["python3 (1234)"].Width, flame["all"].Width))

	// keys move between boxes
	b.press("Escape")
	b.choose("layout", "icicle")
	b.eval("(document.getElementById('canvas').focus(), true)", new(bool))
	b.press("ArrowDown")
	b.press("ArrowDown")
	b.press("ArrowDown")
	qt.Check(t, qt.StringContains(b.text("detail"), "device 0"))
	b.press("Enter")
	qt.Check(t, qt.Equals(b.boxes()["device 0"].Width, b.boxes()["all"].Width))

	qt.Check(t, qt.HasLen(b.complaints, 0))
	for _, url := range b.requests {
		qt.Check(t, qt.IsTrue(strings.HasPrefix(url, "file:") || strings.HasPrefix(url, "data:")), qt.Commentf("%s", url))
	}
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

func TestAFlameGraphOfAModelCanBeShown(t *testing.T) {
	b := newBrowser(t, 1440, 720)
	file := filepath.Join(t.TempDir(), "model.html")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(flameGraph(t, modelRun(900).state.Profile())), 0o644)))
	b.open(file)
	b.screenshot("model_light")
	b.dark(true)
	b.screenshot("model_dark")
	b.press("/")
	b.write("softmax")
	b.screenshot("model_search")
	b.press("Escape")
	b.choose("layout", "flame")
	b.choose("split", "all")
	module := b.boxes()["<module> (demo.py:212)"]
	b.mouse("mouseMoved", module.X+module.Width/2, module.Y+8, 0)
	b.settle()
	b.screenshot("model_flame")
	b.dark(false)
	b.choose("layout", "icicle")
	b.choose("split", "region")
	b.clickBox("L1")
	b.screenshot("model_zoomed")
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": 420, "height": 800, "deviceScaleFactor": 2, "mobile": true,
	})
	b.settle()
	b.screenshot("model_phone")
	qt.Check(t, qt.HasLen(b.complaints, 0))
}

func TestAFlameGraphOf200000StacksIsQuick(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds: not with -short")
	}
	r := modelRun(200_000)
	begun := time.Now()
	file := filepath.Join(t.TempDir(), "large.html")
	f, err := os.Create(file)
	qt.Assert(t, qt.IsNil(err))
	stacks, err := FlameGraph(f, r.state.Profile(), Options{})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(f.Close()))
	info, err := os.Stat(file)
	qt.Assert(t, qt.IsNil(err))
	t.Logf("%d stacks written in %v, %d MiB", stacks, time.Since(begun).Round(time.Millisecond), info.Size()>>20)
	qt.Check(t, qt.IsTrue(stacks > 190_000), qt.Commentf("%d stacks", stacks))

	b := newBrowser(t, 1440, 900)
	begun = time.Now()
	b.open(file)
	t.Logf("opened in %v", time.Since(begun).Round(time.Millisecond))
	var n int
	b.eval("ttmem.nodes()", &n)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"zoom", func() { b.clickBox("L1") }},
		{"another value", func() { b.choose("amount", "allocated") }},
		{"search", func() { b.press("/"); b.write("softmax") }},
		{"split", func() { b.choose("split", "all") }},
	} {
		begun = time.Now()
		step.do()
		took := time.Since(begun)
		t.Logf("%s of %d frames took %v", step.name, n, took.Round(time.Millisecond))
		qt.Check(t, qt.IsTrue(took < 10*time.Second))
	}
	qt.Check(t, qt.HasLen(b.complaints, 0))
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
