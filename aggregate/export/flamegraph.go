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
	//go:embed flame.css
	flameCSS string
	//go:embed flametext.js
	flameTextJS string
	//go:embed flamemodel.js
	flameModelJS string
	//go:embed flametable.js
	flameTableJS string
	//go:embed flamelayout.js
	flameLayoutJS string
	//go:embed flamestate.js
	flameStateJS string
	//go:embed flameview.js
	flameViewJS string
	//go:embed flamegraph.js
	flameJS string
)

// FlameStyle and FlameScript are the style sheet and the JavaScript of a flame graph, for other
// pages that have one.
var (
	FlameStyle  = flameCSS
	FlameScript = flameTextJS + flameModelJS + flameTableJS + flameLayoutJS + flameStateJS + flameViewJS
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
		{"{{style}}", func() error {
			_, err := out.WriteString(FlameStyle)
			return err
		}},
		{"{{what}}", func() error { return writeText(out, summary) }},
		{"{{data}}", func() error { return t.writeJSON(out, o) }},
		{"{{script}}", func() error {
			_, err := out.WriteString(FlameScript + flameJS)
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

// A flameTree has the stacks of all samples in one tree.
type flameTree struct {
	*Stacks
	profile *memory.Profile
	samples []memory.Sample
	seen    distinct
}

func newFlameTree(p *memory.Profile) *flameTree {
	t := &flameTree{Stacks: NewStacks(), profile: p, samples: p.Samples, seen: make(distinct)}
	for i := range t.samples {
		t.seen.add(t.samples[i].Stack)
		t.Add(t.samples[i].Stack)
	}
	return t
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

// writeJSON writes the data of the page: that of the stacks, and the samples. Numbers are in flat
// lists, because there may be millions. A sample has its group, its node, and the count and bytes
// of allocated, live and peak. The text cannot close its HTML element: json writes < as \u003c.
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
	stacks, samples := t.Data(), []int64{}
	for i := range t.samples {
		s := &t.samples[i]
		samples = append(samples, int64(groups[i]), int64(t.leaf[s.Stack]), clamp(s.Allocated.Count), clamp(s.Allocated.Bytes),
			clamp(s.Unfreed().Count), clamp(s.Unfreed().Bytes), clamp(s.Peak.Count), clamp(s.Peak.Bytes))
	}
	separator := "{"
	for _, part := range []struct {
		name  string
		value any
	}{{"head", head}, {"strings", stacks.Strings}, {"frames", stacks.Frames}, {"nodes", stacks.Nodes}, {"samples", samples}} {
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
