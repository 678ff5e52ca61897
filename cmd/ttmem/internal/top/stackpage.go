package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// stackHead returns the figures of the shown row.
func (m *model) stackHead() []string {
	r := m.shown
	lines := []string{"", " " + m.Paint(page.Bold, m.Cut(m.clean(r.Text), m.width-1))}
	var facts []string
	if r.Amounts[live].Count > 0 {
		facts = append(facts, fmt.Sprintf("%s in %s", page.Bytes(r.Amounts[live].Bytes), count(r.Amounts[live].Count, "buffer")))
	}
	if r.Amounts[statics].Count > 0 {
		facts = append(facts, fmt.Sprintf("%s per core in %s", page.KiB(r.Amounts[statics].Bytes), count(r.Amounts[statics].Count, "circular buffer")))
	}
	if m.present.Marked {
		grown := "+" + page.Bytes(r.Amounts[grown].Bytes)
		if r.Amounts[grownStatics].Count > 0 {
			grown += ", +" + count(r.Amounts[grownStatics].Count, "circular buffer")
		}
		facts = append(facts, grown+" since the mark")
	}
	if r.OldestNs > 0 {
		facts = append(facts, "live for "+formatAge(r.OldestNs))
	}
	facts = append(facts, regionOf(r))
	if len(devices(r)) > 0 {
		facts = append(facts, "on "+count(uint64(len(devices(r))), "chip")+": "+page.ShortChips(devices(r), shortIDs))
	}
	facts = append(facts, "PID "+page.PIDs(slices.Sorted(slices.Values(pids(r)))))
	lines = append(lines, " "+m.Cut(strings.Join(facts, m.Separator()), m.width-1))
	if component := r.Component; component != "" {
		lines = append(lines, " "+m.Paint(page.Dim, m.Cut(m.clean(component), m.width-1)))
	}
	return append(lines, "", m.Paint(page.OnGreen, m.left("        innermost call first", m.width)))
}

// kindColumns is the width of the kind of a frame.
const kindColumns = 8

// stackLines returns the calls of the shown row, innermost first. The user's own calls are
// bold.
func (m *model) stackLines() (lines []string) {
	frames := m.shown.Stack.Frames()
	if len(frames) == 0 {
		text := "No call stack: allocated before ttmem attached, or none was recorded."
		if held := m.shown.Holders.Text(m.Separator()); held != "" {
			text = "Allocated before ttmem attached: no call stack; " + m.clean(held)
		}
		lines = append(lines, "")
		for _, line := range page.Fold(text, m.width-2) {
			lines = append(lines, " "+line)
		}
	}
	own := name.UserCalls(frames)
	if !m.allFrames {
		frames = name.Fold(frames)
	}
	for i := range frames {
		f := &frames[i]
		kind, kindStyle, st := "C++", page.Blue, page.NoStyle
		if f.Kind == event.Python {
			kind, kindStyle = "Python", page.Yellow
		}
		if slices.Contains(own, name.Call{Function: f.Name, File: f.File, Line: f.Line}) {
			st = page.Bold
		}
		text, place := page.FrameTexts(f)
		if f.Inlined {
			text += " (inlined)"
		}
		lines = append(lines, " "+m.Paint(kindStyle, m.left(kind, kindColumns-1))+m.Paint(st, m.clean(text))+"  "+m.Paint(page.Dim, m.clean(place)))
	}
	return append(lines, m.holderLines()...)
}

// shownHeld is the maximum number of listed buffers of each holder.
const shownHeld = 100

// holderLines lists the buffers of the shown row whose owners are known, with the whole paths.
func (m *model) holderLines() (lines []string) {
	for _, h := range m.shown.Holders {
		head := fmt.Sprintf("held by %s: %s", m.clean(h.Path), count(h.Count, "buffer"))
		lines = append(lines, "", " "+m.Paint(page.Bold, head))
		shown, omitted := page.First(h.Buffers, shownHeld)
		for _, b := range shown {
			lines = append(lines, " "+page.Right(page.Bytes(b.AllocatedBytes()*uint64(max(1, len(b.Devices)))), page.SizeColumns)+"  "+
				m.clean(b.Path)+"  "+m.Paint(page.Dim, m.clean(b.Tensor)))
		}
		if omitted > 0 {
			lines = append(lines, m.Paint(page.Dim, fmt.Sprintf(" and %s more", page.Grouped(omitted))))
		}
	}
	return lines
}

// helpLines returns the keys and the glossary.
func (m *model) helpLines() []string {
	var lines []string
	for _, part := range help {
		lines = append(lines, "", " "+m.Paint(page.Bold, part.title))
		for _, b := range part.list {
			key := "   " + m.Paint(page.Cyan, m.left(strings.Replace(b.key, "↑ ↓", m.Pick("↑ ↓", "up down"), 1), 15)) + " "
			for _, text := range page.Wrap(b.does, max(20, m.width-20)) {
				lines = append(lines, key+text)
				key = page.Blank(19)
			}
		}
	}
	return append(lines, "")
}

// outputLines returns the notes and the last output of the traced command.
func (m *model) outputLines() (lines []string) {
	for _, note := range m.present.Notes {
		for _, line := range page.Wrap(m.clean(note), max(20, m.width-2)) {
			lines = append(lines, " "+m.Paint(page.Yellow, line))
		}
	}
	if len(lines) > 0 && m.output {
		lines = append(lines, "")
	}
	for _, line := range m.present.Output {
		lines = append(lines, " "+m.clean(ansi.Strip(line)))
	}
	switch {
	case len(lines) > 0:
		return lines
	case m.output:
		return []string{"", " No output yet."}
	}
	return []string{"", " No notes."}
}
