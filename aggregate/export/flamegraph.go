package export

import (
	"bufio"
	_ "embed"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// The page with placeholders for its script, data and texts, and the parts of its script.
var (
	//go:embed flamegraph.html
	flameHTML string
	//go:embed flamemodel.js
	flameModelJS string
	//go:embed flametable.js
	flameTableJS string
	//go:embed flamelayout.js
	flameLayoutJS string
	//go:embed flamestate.js
	flameStateJS string
	//go:embed flamegraph.js
	flameJS string
)

// FlameGraph writes the profile as one self-contained HTML page: a flame graph and a table of
// functions, with search and zoom. Readers choose the value, and one region of one process and
// device or all.
//
// It returns the number of different stacks.
func FlameGraph(w io.Writer, p *memory.Profile, o Options) (stacks int, err error) {
	t := newFlameTree(p)
	out := bufio.NewWriterSize(w, 64<<10)
	page := flameHTML
	summary := t.summary(o)
	for _, part := range []struct {
		mark  string
		write func() error
	}{
		{"{{title}}", func() error { return writeText(out, "Device memory by call stack - "+summary) }},
		{"{{what}}", func() error { return writeText(out, summary) }},
		{"{{data}}", func() error { return t.writeJSON(out, o) }},
		{"{{script}}", func() error {
			_, err := out.WriteString(flameModelJS + flameTableJS + flameLayoutJS + flameStateJS + flameJS)
			return err
		}},
	} {
		before, after, ok := strings.Cut(page, part.mark)
		if !ok {
			return 0, fmt.Errorf("the page has no %s", part.mark)
		}
		out.WriteString(before)
		if err := part.write(); err != nil {
			return 0, err
		}
		page = after
	}
	out.WriteString(page)
	return len(t.seen), out.Flush()
}

func writeText(out *bufio.Writer, s string) error {
	_, err := out.WriteString(html.EscapeString(event.Printable(s)))
	return err
}

// A flameTree has the stacks of all samples in one tree, from the outermost frame on. It stores
// each name once.
type flameTree struct {
	profile *memory.Profile
	samples []memory.Sample
	seen    distinct

	strings map[string]int
	list    []string
	frames  map[flameFrame]int32
	order   []flameFrame
	nodes   []flameNode
	index   map[flameEdge]int32
	// leaf is the innermost node of each stack.
	leaf map[*event.Stack]int32
}

// A flameFrame is a native function or a line of a Python function. A native function is one box
// for all its calls; their lines are in the nodes.
type flameFrame struct {
	kind               int
	name, file, module int
	line               int
	inlined            bool
}

// The kinds of frames in the page's data.
const (
	flameNative = iota
	flamePython
	flameOther
)

type flameNode struct {
	parent, frame int32
	// line is 0 if it is not known, and severalLines if it differs.
	line int
}

const severalLines = -1

type flameEdge struct{ parent, frame int32 }

func newFlameTree(p *memory.Profile) *flameTree {
	t := &flameTree{
		profile: p, samples: p.Samples, seen: make(distinct),
		strings: map[string]int{"": 0}, list: []string{""},
		frames: make(map[flameFrame]int32),
		nodes:  make([]flameNode, 1), // the root
		index:  make(map[flameEdge]int32),
		leaf:   make(map[*event.Stack]int32),
	}
	for i := range t.samples {
		t.seen.add(t.samples[i].Stack)
		t.add(&t.samples[i])
	}
	return t
}

// add adds the sample's stack to the tree if it is new.
func (t *flameTree) add(s *memory.Sample) {
	if _, ok := t.leaf[s.Stack]; ok {
		return
	}
	var at int32
	list := frames(s)
	for i := len(list) - 1; i >= 0; i-- {
		at = t.child(at, t.frame(&list[i]), list[i].Line)
	}
	t.leaf[s.Stack] = at
}

func (t *flameTree) child(parent, frame int32, line int) int32 {
	edge := flameEdge{parent, frame}
	i, ok := t.index[edge]
	if !ok {
		i = int32(len(t.nodes))
		t.index[edge] = i
		t.nodes = append(t.nodes, flameNode{parent, frame, line})
	} else if n := &t.nodes[i]; n.line != line {
		n.line = severalLines
	}
	return i
}

func (t *flameTree) frame(f *event.Frame) int32 {
	key := flameFrame{
		kind: flameOther, name: t.string(functionName(f)), file: t.string(f.File), module: t.string(f.Module),
		inlined: f.Inlined,
	}
	switch f.Kind {
	case event.Native:
		key.kind = flameNative
	case event.Python:
		key.kind, key.line = flamePython, f.Line
	}
	i, ok := t.frames[key]
	if !ok {
		i = int32(len(t.order))
		t.frames[key] = i
		t.order = append(t.order, key)
	}
	return i
}

func (t *flameTree) string(s string) int {
	i, ok := t.strings[s]
	if !ok {
		i = len(t.list)
		t.strings[s] = i
		t.list = append(t.list, event.Printable(s))
	}
	return i
}

// summary returns a line with the content of the page and the time of the trace.
func (t *flameTree) summary(o Options) string {
	processes, devices := make(map[int]bool), make(map[int]bool)
	for i := range t.samples {
		processes[t.samples[i].PID], devices[t.samples[i].Device] = true, true
	}
	var parts []string
	if len(processes) == 1 {
		for pid := range processes {
			parts = append(parts, processNames(t.profile).process(pid))
		}
	} else {
		parts = append(parts, count(len(processes), "process", "processes"))
	}
	parts = append(parts, count(len(devices), "device", "devices"), count(len(t.seen), "stack", "stacks"))
	first, last := t.profile.FirstNs, t.profile.LastNs
	traced := "traced for " + strconv.FormatFloat(float64(last-first)/1e9, 'f', 1, 64) + " s"
	if !o.Begun.IsZero() {
		traced += " from " + o.Begun.Format("2006-01-02 15:04:05 MST")
	}
	return strings.Join(append(parts, traced), ", ")
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Grouped(n) + " " + many
}

// Grouped writes a number for people: "1,234,567".
func Grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// flameHead is the small part of the page's data.
type flameHead struct {
	Begun time.Time `json:"begun,omitzero"`
	// Processes are pid, name and command line.
	Processes [][3]any `json:"processes"`
	// Peaks are device, region, bytes and seconds since the first event.
	Peaks [][4]any `json:"peaks"`
	// Groups are pid, device and region of samples that follow each other.
	Groups [][3]any `json:"groups"`
}

// writeJSON writes the data of the page. Numbers are in flat lists, because there may be
// millions. A frame has kind, name, file, module, line and inlined. A node has the distance to
// its parent, its frame and its line; the root is left out. A sample has its group, its node, and
// the count and bytes of allocated, live and peak. The text cannot close its HTML element: json
// writes < as \u003c.
func (t *flameTree) writeJSON(out *bufio.Writer, o Options) error {
	head := flameHead{Begun: o.Begun}
	for _, process := range t.profile.Processes {
		head.Processes = append(head.Processes, [3]any{process.PID, event.Printable(process.Comm), event.Printable(process.Command)})
	}
	first := t.profile.FirstNs
	for _, q := range t.profile.Peaks {
		seconds := float64(q.TimeNs-first) / 1e9
		head.Peaks = append(head.Peaks, [4]any{deviceName(q.Device), q.Region.String(), q.Bytes, seconds})
	}
	groups := make([]int, len(t.samples))
	for i := range t.samples {
		s := &t.samples[i]
		if i == 0 || s.PID != t.samples[i-1].PID || s.Device != t.samples[i-1].Device || s.Region != t.samples[i-1].Region {
			head.Groups = append(head.Groups, [3]any{s.PID, deviceName(s.Device), s.Region.String()})
		}
		groups[i] = len(head.Groups) - 1
	}
	frames, nodes, samples := []int64{}, []int64{}, []int64{}
	for _, f := range t.order {
		inlined := int64(0)
		if f.inlined {
			inlined = 1
		}
		frames = append(frames, int64(f.kind), int64(f.name), int64(f.file), int64(f.module), int64(f.line), inlined)
	}
	for i, n := range t.nodes[1:] {
		nodes = append(nodes, int64(i+1)-int64(n.parent), int64(n.frame), int64(n.line))
	}
	for i := range t.samples {
		s := &t.samples[i]
		samples = append(samples, int64(groups[i]), int64(t.leaf[s.Stack]), clamp(s.Allocated.Count), clamp(s.Allocated.Bytes),
			clamp(s.Unfreed().Count), clamp(s.Unfreed().Bytes), clamp(s.Peak.Count), clamp(s.Peak.Bytes))
	}
	separator := "{"
	for _, part := range []struct {
		name  string
		value any
	}{{"head", head}, {"strings", t.list}, {"frames", frames}, {"nodes", nodes}, {"samples", samples}} {
		text, err := event.MarshalJSON(part.value)
		if err != nil {
			return err
		}
		out.WriteString(separator + `"` + part.name + `":`)
		out.Write(text)
		separator = ",\n"
	}
	_, err := out.WriteString("}")
	return err
}
