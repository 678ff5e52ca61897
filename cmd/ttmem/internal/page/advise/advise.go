// Package advise shows the buffers that are held after their last use, and what freeing them earlier gives.
package advise

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"strings"

	"ttmem/aggregate/advise"
	"ttmem/aggregate/lives"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// A Page is the advice of a recording.
type Page struct {
	*advise.Advice
	// Limit is the maximum number of lines of each region; 0: all.
	Limit int
	Notes []string
}

// unjudged are the reasons for which buffers are not judged, in words.
var unjudged = [...]string{
	advise.Survives: "live to the end, as weights and results are", advise.Unfilled: "never used and live to the end, as pages for later are", advise.Periodic: "used again and again, as weights and caches are",
	advise.Constructed: "allocated by a constructor, as weights are", advise.Loaded: "written once by the host, as weights are", advise.Before: "from before tracing began",
	advise.Unknown: "perhaps used by runs of which that is not known", advise.Retained: "of tt-metal itself",
}

// limits says what is not known of the recording, and why.
func (p *Page) limits() (list []string) {
	switch unknown := p.Runs - p.Known; {
	case p.Runs == 0:
		list = append(list, "Nothing is judged: the recording has no runs of programs.")
	case p.Known == 0:
		list = append(list, "Nothing is judged: what programs use is not recorded; it is by ttmem run, if ttmem doctor finds \"uses\" in the library.")
	case unknown > 0:
		list = append(list, fmt.Sprintf("Of %s of programs it is not recorded what they use: buffers that these may have used are not judged.", page.Count(unknown, "run")))
	}
	if p.Lost {
		list = append(list, "Events were lost: buffers that were live then are not judged.")
	}
	if p.Full {
		list = append(list, fmt.Sprintf("Only the first %s buffers and uses are judged: the recording has more.", page.Grouped(lives.Most)))
	}
	if !p.HasStacks() {
		list = append(list, "The recording has no call stacks: which lines allocated is not known.")
	}
	return list
}

// WriteText writes the page.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	for _, text := range p.limits() {
		layout.Write(out, 0, page.BoldRed, text)
	}
	if p.Known == 0 {
		return out.Flush()
	}
	for i, one := range p.Peaks {
		if i > 0 {
			fmt.Fprintln(out)
		}
		p.writePeak(out, layout, one)
	}
	if len(p.Peaks) == 0 {
		layout.Write(out, 0, page.NoStyle, "Nothing was allocated.")
	}
	return out.Flush()
}

func (p *Page) writePeak(out *bufio.Writer, layout page.Layout, one *advise.Peak) {
	layout.WriteTitle(out, "", one.Region.String()+" of "+page.EachChip(one.Devices), fmt.Sprintf(": peak %s after %s, at %s",
		page.Bytes(one.Peak*one.Banks), page.Count(uint64(one.PeakRun), "program run"), siteName(layout, one.PeakStack)))
	held := page.Bytes(one.Held.Bytes * one.Banks)
	switch {
	case one.Held.Count == 0:
		layout.Write(out, 1, page.Bold, "Nothing to gain: all buffers that can be judged are still needed then.")
	case one.All.Doubt == "" && one.Gain(one.All) == 0:
		layout.Write(out, 1, page.Bold, "Nothing to gain: "+held+" are not used any more then, but without them the peak is as high; proved by replay.")
	default:
		layout.Write(out, 1, page.Bold, held+" are not used any more then. If all is freed after its last use, "+outcome(one, one.All)+".")
		p.writeLines(out, layout, one)
	}
	if len(one.Best) > 1 && one.Gain(one.All) > 0 {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("If the first %d lines are, %s.", len(one.Best), outcome(one, one.Best[len(one.Best)-1])))
	}
	for _, l := range one.Early {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("%s not used yet then, allocated %s earlier: %s",
			page.Bytes(l.PerBank*one.Banks), page.Count(uint64(l.Runs), "program run"), siteName(layout, l.Stack)))
	}
	for _, l := range one.Idle {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("%s idle for %s around it: %s, between %s and %s",
			page.Bytes(l.PerBank*one.Banks), page.Count(uint64(l.Runs), "program run"), siteName(layout, l.Stack), siteName(layout, l.LastUse), siteName(layout, l.NextUse)))
	}
	var others []string
	for reason, n := range one.NotJudged {
		if n.Count > 0 {
			others = append(others, page.Bytes(n.Bytes*one.Banks)+" "+unjudged[reason])
		}
	}
	if len(others) > 0 {
		layout.Write(out, 1, page.Dim, "Not used after it, but not judged: "+strings.Join(others, "; ")+".")
	}
}

func (p *Page) writeLines(out *bufio.Writer, layout page.Layout, one *advise.Peak) {
	columns := page.Columns{11, 9, 7}
	layout.WriteHead(out, columns.Line("held", "buffers", "runs"), "  allocated by")
	shown, omitted := page.First(one.Lines, p.Limit)
	for _, l := range shown {
		title := siteName(layout, l.Stack)
		if held := alloc.HeldBy(l.Owner, layout.Separator()); held != "" {
			title += ", " + held
		}
		cells := columns.Line(page.Bytes(l.PerBank*one.Banks), fmt.Sprint(l.Count), fmt.Sprint(l.Runs)) + "  "
		indent := layout.Beside(out, cells, page.Green, title)
		text := "last used by " + siteName(layout, l.LastUse) + "; freed there, "
		if l.Unused {
			text = "never used; freed at once, "
		}
		layout.Write(out, indent, page.NoStyle, text+outcome(one, l.Alone))
	}
	if omitted > 0 {
		layout.Write(out, 1, page.NoStyle, "and "+page.Count(uint64(omitted), "other line")+": -n 0 shows all")
	}
}

// outcome says what the peak then is, and whether that is proved.
func outcome(of *advise.Peak, o advise.Outcome) string {
	text, gain := "the peak is "+page.Bytes(o.PerBank*of.Banks), of.Gain(o)*of.Banks
	switch {
	case gain == 0:
		text = "the peak stays"
	case text == "the peak is "+page.Bytes(of.Peak*of.Banks):
		text = "the peak is " + page.Bytes(gain) + " lower"
	}
	if o.Doubt != "" {
		return text + "; not proved: " + o.Doubt
	}
	return text + "; proved by replay"
}

func siteName(layout page.Layout, stack *event.Stack) string {
	return cmp.Or(page.Clean(name.Of(stack.Frames()).Text(layout.Separator())), "(no call stack)")
}

// Document is the output of `ttmem advise --json`.
//
//schema:advise
type Document struct {
	V int `json:"v"`
	// Peaks are those of DRAM and L1, each in the allocator with the highest one.
	Peaks []peak `json:"peaks"`
	// Limits say what is not known of the recording, and why.
	Limits []string `json:"limits"`
	Notes  []string `json:"notes,omitempty"`
}

// peak is the peak of a region, of all banks of each chip. HeldBytes are of the buffers that are not used any more.
//
//schema:advise_peak
type peak struct {
	Region    string `json:"region" schema:"banked_region"`
	PID       int    `json:"pid" user:"user"`
	Devices   []int  `json:"devices"`
	PeakBytes uint64 `json:"peak_bytes"`
	TimeNs    uint64 `json:"time_ns" wall:"wall_ns"`
	// Runs is the number of runs of programs before it.
	Runs      uint32       `json:"runs"`
	Name      string       `json:"name"`
	Stack     *event.Stack `json:"stack,omitempty"`
	HeldCount uint64       `json:"held_count"`
	HeldBytes uint64       `json:"held_bytes"`
	// All is if all these buffers are freed after their last use, and Best if those of the first line are, of the first
	// two, and of the first three.
	All  *freed  `json:"all_freed,omitempty"`
	Best []freed `json:"best,omitempty"`
	// Lines hold these buffers, the most bytes first. Omitted is the number that -n leaves out. Early lines allocated
	// buffers that are not used yet, and Idle lines those that are used long before and long after it.
	Lines   []line `json:"lines"`
	Omitted int    `json:"omitted"`
	Early   []line `json:"early,omitempty"`
	Idle    []line `json:"idle,omitempty"`
	// NotJudged are those that are not used after the peak, but may be needed.
	NotJudged []notJudged `json:"not_judged,omitempty"`
}

// freed is the peak if buffers are freed earlier, and whether replay proves it. Without proof, reason says why.
//
//schema:advise_freed
type freed struct {
	PeakBytes uint64 `json:"peak_bytes"`
	Proved    bool   `json:"proved"`
	Reason    string `json:"reason,omitempty"`
}

// line is a line with its operation. Unused is true if its buffers are never used. Runs are the runs of programs between the
// last use and the peak; of early lines, between the allocation and the peak; of idle lines, between the uses before and
// after it.
//
//schema:advise_line
type line struct {
	Name   string       `json:"name"`
	Stack  *event.Stack `json:"stack,omitempty"`
	Count  uint64       `json:"count"`
	Bytes  uint64       `json:"bytes"`
	Unused bool         `json:"unused,omitempty"`
	Runs   uint32       `json:"runs"`
	// Owner is what held the buffer with the most Runs, and Tensor the tensor there.
	Owner        string       `json:"owner,omitempty"`
	Tensor       string       `json:"tensor,omitempty"`
	LastUse      string       `json:"last_use,omitempty"`
	LastUseStack *event.Stack `json:"last_use_stack,omitempty"`
	NextUse      string       `json:"next_use,omitempty"`
	Freed        *freed       `json:"freed,omitempty"`
}

// notJudged are buffers that may be needed, and why.
//
//schema:advise_not_judged
type notJudged struct {
	Why   string `json:"why"`
	Count uint64 `json:"count"`
	Bytes uint64 `json:"bytes"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	doc := Document{V: 1, Peaks: []peak{}, Limits: append([]string{}, p.limits()...), Notes: p.Notes}
	for _, one := range p.Peaks {
		doc.Peaks = append(doc.Peaks, p.document(one))
	}
	return doc
}

func (p *Page) document(one *advise.Peak) peak {
	freedBy := func(o advise.Outcome) *freed { return &freed{o.PerBank * one.Banks, o.Doubt == "", o.Doubt} }
	lineOf := func(l *advise.Line) line {
		return line{
			Name: name.Of(l.Stack.Frames()).String(), Stack: l.Stack, Count: l.Count, Bytes: l.PerBank * one.Banks, Unused: l.Unused, Runs: l.Runs,
			Owner: l.Owner.Path, Tensor: l.Owner.Tensor, LastUse: name.Of(l.LastUse.Frames()).String(), LastUseStack: l.LastUse,
			NextUse: name.Of(l.NextUse.Frames()).String(),
		}
	}
	doc := peak{
		Region: one.Region.String(), PID: one.PID, Devices: one.Devices, PeakBytes: one.Peak * one.Banks, TimeNs: one.PeakNs, Runs: one.PeakRun,
		Name: name.Of(one.PeakStack.Frames()).String(), Stack: one.PeakStack, HeldCount: one.Held.Count, HeldBytes: one.Held.Bytes * one.Banks, Lines: []line{},
	}
	if one.Held.Count > 0 {
		doc.All = freedBy(one.All)
	}
	for _, o := range one.Best {
		doc.Best = append(doc.Best, *freedBy(o))
	}
	shown, omitted := page.First(one.Lines, p.Limit)
	doc.Omitted = omitted
	for _, l := range shown {
		doc.Lines = append(doc.Lines, lineOf(l))
		doc.Lines[len(doc.Lines)-1].Freed = freedBy(l.Alone)
	}
	for _, l := range one.Early {
		doc.Early = append(doc.Early, lineOf(l))
	}
	for _, l := range one.Idle {
		doc.Idle = append(doc.Idle, lineOf(l))
	}
	for reason, n := range one.NotJudged {
		if n.Count > 0 {
			doc.NotJudged = append(doc.NotJudged, notJudged{unjudged[reason], n.Count, n.Bytes * one.Banks})
		}
	}
	return doc
}
