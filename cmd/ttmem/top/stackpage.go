package top

import (
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// stackHead returns the figures of the shown row.
func (m *model) stackHead() []string {
	r := m.shown
	title := m.clean(r.title)
	lines := []string{"", " " + m.Paint(bold, m.Cut(title, m.width-1))}
	var facts []string
	if r.count > 0 {
		facts = append(facts, fmt.Sprintf("%s in %s", page.Bytes(r.bytes), count(r.count, "buffer")))
	}
	if r.statics > 0 {
		facts = append(facts, fmt.Sprintf("%s in %s", page.Bytes(r.static), count(r.statics, "circular buffer")))
	}
	if m.present.Marked {
		facts = append(facts, "+"+page.Bytes(r.grown)+" since the mark")
	}
	if r.since > 0 {
		facts = append(facts, "live for "+formatAge(m.present.NowNs-min(m.present.NowNs, r.since)))
	}
	facts = append(facts, r.regions.String())
	ids, pids := slices.Sorted(slices.Values(r.devices)), slices.Sorted(slices.Values(r.pids))
	if len(ids) > 0 {
		facts = append(facts, "on "+count(uint64(len(ids)), "chip")+": "+formatIDs(ids))
	}
	facts = append(facts, "PID "+strings.ReplaceAll(strings.Trim(fmt.Sprint(pids), "[]"), " ", ", "))
	lines = append(lines, " "+m.Cut(strings.Join(facts, m.Pick(" · ", " - ")), m.width-1))
	if component := m.sites.of(r.stack).Component; component != "" {
		lines = append(lines, " "+m.Paint(dim, m.Cut(m.clean(component), m.width-1)))
	}
	return append(lines, "", m.Paint(head, m.left("        innermost call first", m.width)))
}

// stackLines returns the calls of the shown row, innermost first. The user's own calls are
// bold.
func (m *model) stackLines() []string {
	frames := m.shown.stack.Frames()
	if len(frames) == 0 {
		return []string{"", " No call stack: allocated before ttmem attached, or none was taken."}
	}
	own := make(map[name.Call]bool)
	for _, call := range name.UserCalls(frames) {
		own[call] = true
	}
	var lines []string
	for i := range frames {
		lines = append(lines, m.frameLine(&frames[i], own))
	}
	return lines
}

func (m *model) frameLine(f *event.Frame, own map[name.Call]bool) string {
	kind, kindStyle := "C++", blue
	if f.Kind == event.Python {
		kind, kindStyle = "Python", yellow
	}
	text := m.clean(f.Name)
	if text == "" {
		text = fmt.Sprintf("%#x", f.Address)
	}
	place := m.clean(f.Module)
	if f.File != "" {
		place = m.clean(fmt.Sprintf("%s:%d", f.File, f.Line))
	}
	st := noStyle
	if own[name.Call{Function: f.Name, File: f.File, Line: f.Line}] {
		st = bold
	}
	if f.Inlined {
		text += " (inlined)"
	}
	return " " + m.Paint(kindStyle, m.left(kind, 7)) + m.Paint(st, text) + "  " + m.Paint(dim, place)
}

// shifted returns a line scrolled by n columns. The kind of frame stays.
func (m *model) shifted(line string, n int) string {
	const kept = 8
	return ansi.Truncate(line, kept, "") + ansi.TruncateLeft(line, kept+n, "")
}

// helpLines returns the keys and the glossary.
func (m *model) helpLines() []string {
	var lines []string
	for _, part := range slices.Concat(bindings, glossary) {
		lines = append(lines, "", " "+m.Paint(bold, part.title))
		for _, b := range part.list {
			key := b.key
			if m.ASCII {
				key = strings.NewReplacer("↑ ↓", "up down").Replace(key)
			}
			text := page.Wrap(b.does, max(20, m.width-20))
			lines = append(lines, "   "+m.Paint(cyan, m.left(key, 15))+" "+text[0])
			for _, more := range text[1:] {
				lines = append(lines, page.Blank(19)+more)
			}
		}
	}
	return append(lines, "")
}

// outputLines returns the notes and the last output of the traced command.
func (m *model) outputLines() []string {
	var lines []string
	for _, note := range m.present.Notes {
		for _, line := range page.Wrap(m.clean(note), max(20, m.width-2)) {
			lines = append(lines, " "+m.Paint(yellow, line))
		}
	}
	if m.output {
		if len(lines) > 0 {
			lines = append(lines, "")
		}
		for _, line := range m.present.Output {
			lines = append(lines, " "+m.clean(ansi.Strip(line)))
		}
	}
	if len(lines) == 0 {
		lines = []string{"", " No notes."}
		if m.output {
			lines[1] = " No output yet."
		}
	}
	return lines
}
