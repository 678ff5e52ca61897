package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/charmbracelet/x/ansi"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// The smallest usable terminal.
const (
	leastWidth  = 60
	leastHeight = 14
)

// frame returns the lines of the screen, none wider than it. They fill the height of the screen
// or, if the frame is printed once, are not more.
func (m *model) frame() []string {
	if m.width < leastWidth || m.height < leastHeight {
		return m.tooSmall()
	}
	lines := []string{m.heading()}
	m.zones = m.zones[:0]
	if m.present == nil {
		return m.fill(append(lines, "", " Loading…"))
	}
	switch m.page {
	case pageHelp:
		lines = m.scrolled(lines, m.helpLines(), 0)
	case pageOutput:
		lines = m.scrolled(lines, m.outputLines(), 0)
	case pageHistory:
		lines = m.scrolled(lines, m.historyLines(), 0)
	case pageStack:
		lines = append(lines, m.stackHead()...)
		lines = m.scrolled(lines, m.stackLines(), m.shift)
	default:
		lines = m.tablePage(lines)
	}
	if m.once {
		return lines
	}
	return append(m.fill(lines)[:m.height-1], m.footer(m.height-1))
}

// fill cuts or extends the lines to the height.
func (m *model) fill(lines []string) []string {
	for len(lines) < m.height {
		lines = append(lines, "")
	}
	return lines
}

func (m *model) tooSmall() []string {
	text := fmt.Sprintf("too small: %dx%d, top needs %dx%d", m.width, m.height, leastWidth, leastHeight)
	lines, _ := page.First(strings.Split(ansi.Hardwrap(text, max(1, m.width), true), "\n"), max(1, m.height))
	return m.fill(lines)
}

// heading returns the first line: the source and its state.
func (m *model) heading() string {
	title := m.Paint(page.OnCyan, " ttmem top ")
	p := m.present
	if p == nil {
		return title
	}
	state, notes := "", ""
	if n := len(p.Notes); n > 0 && !m.once {
		notes = count(uint64(n), "note") + ": o"
	}
	ended := p.Ended
	if m.reel != nil {
		ended = ""
	}
	for _, part := range []string{p.Doing, ended, notes} {
		if part != "" {
			state += m.Paint(page.Dim, m.Separator()) + m.Paint(page.Yellow, m.clean(part))
		}
	}
	running, buffers := 0, uint64(0)
	for _, u := range m.processUses() {
		if u.Exit == nil {
			running, buffers = running+1, buffers+u.buffers
		}
	}
	facts := count(uint64(running), "process") + "  " + count(buffers, "buffer")
	if m.live() && !m.once {
		facts += "  " + formatShort(uint64(p.eventRate+0.5)) + " " + page.Plural(uint64(p.eventRate+0.5), "event") + "/s"
	}
	facts = m.Paint(page.Dim, facts)
	if p.Marked {
		facts += "  " + m.Paint(page.OnCyan, " mark "+m.ago(p.MarkNs)+" ago ")
	}
	if m.paused {
		facts += "  " + m.Paint(page.OnYellow, " PAUSED ")
	}
	room := m.width - page.Width(title) - page.Width(state) - page.Width(facts) - 3
	return m.ends(title+" "+m.Paint(page.Bold, m.Cut(m.clean(p.Of), max(8, room)))+state, facts, m.width)
}

// warnings returns lines about possible errors and missing parts.
func (m *model) warnings() (list []string) {
	p := m.present
	alarm := func(text, more string) {
		list = append(list, m.Cut(m.Paint(page.OnRed, " ! ")+" "+m.Paint(page.BoldRed, text)+m.Paint(page.Dim, more), m.width))
	}
	note := func(st page.Style, text string) {
		for _, line := range page.Wrap(text, m.width-2) {
			list = append(list, m.Cut(" "+m.Paint(st, line), m.width))
		}
	}
	losses := p.Losses(true, nil)
	if m.reel != nil {
		losses = m.reel.losses
	}
	for _, text := range page.Doubts(losses, "totals may be wrong") {
		alarm(m.clean(text), "")
	}
	if n := p.FailureCount; n > 0 {
		last := p.Failures[len(p.Failures)-1]
		alarm(count(n, "allocation")+" failed", fmt.Sprintf(", the last %s ago: %s, PID %d", m.ago(last.TimeNs), requested(&last), last.PID))
	}
	if n := p.UnsafeCount; n > 0 {
		more := ""
		if len(p.Unsafe) > 0 {
			first := &p.Unsafe[0]
			more = fmt.Sprintf(": %s of %s, PID %d, %s ago", page.Bytes(first.Bytes), lineOf(first.Stack), first.PID, m.ago(first.TimeNs))
		}
		alarm(count(n, "buffer")+" may be overwritten by a trace", m.clean(more))
	}
	if leaked, others := m.leaked(); leaked != "" {
		alarm(leaked, others)
	}
	if p.Last {
		note(page.Yellow, "The command has ended: this is its memory after its last allocation or run.")
	}
	if p.Others != "" {
		sign := ""
		if p.Chips != nil {
			sign = m.Pick(" (▒)", " (+)")
		}
		note(page.NoStyle, "Only your own processes are shown: "+m.clean(p.Others)+sign)
	}
	if p.Unread {
		note(page.Yellow, "The memory of processes that were already running is still being read: totals are incomplete.")
	}
	return list
}

// leaked says how much leaked, and which line leaks most: "720.0 KiB leaked: model.py:21 forward".
// others is the number of other lines.
func (m *model) leaked() (text, others string) {
	leaks := slices.DeleteFunc(slices.Clone(m.present.leaks), func(v analyze.Verdict) bool {
		return m.filter.pid != 0 && v.PID != m.filter.pid
	})
	if len(leaks) == 0 {
		return "", ""
	}
	type total struct {
		line  string
		bytes uint64
	}
	var totals page.Groups[string, total]
	sum := uint64(0)
	for _, v := range leaks {
		line := lineOf(v.Stack)
		one, _ := totals.Of(line)
		*one = total{line, one.bytes + v.Bytes}
		sum += v.Bytes
	}
	largest := slices.MaxFunc(totals.List, func(a, b *total) int { return cmp.Compare(a.bytes, b.bytes) })
	if n := len(totals.List) - 1; n > 0 {
		others = fmt.Sprintf(" and %d more: ttmem leaks", n)
	}
	return page.Bytes(sum) + " leaked: " + m.clean(largest.line), others
}

// lineOf names the line of a stack or, without one, its operation.
func lineOf(stack *event.Stack) string {
	of := name.Of(stack.Frames())
	return cmp.Or(of.Call.String(), of.Op, alloc.Unknown(stack, false))
}

// requested describes a failed allocation.
func requested(f *memory.Failure) string {
	switch {
	case f.Region == event.CB.String():
		return "circular buffers"
	case f.SizeBytes == 0:
		return f.Region
	}
	return page.Bytes(f.SizeBytes) + " of " + f.Region
}

// tablePage adds the page of bars, processes and rows.
func (m *model) tablePage(lines []string) []string {
	var blank []string
	if m.roomy() {
		blank = []string{""}
	}
	if m.reel != nil {
		lines = append(lines, m.reelLine(len(lines)))
	} else if m.clock.Known() {
		lines = append(lines, m.Paint(page.Bold, " "+m.clock.UTC(m.present.NowNs)+" UTC"))
	}
	lines = slices.Concat(lines, m.warnings(), m.chipLines(), blank)
	lines = slices.Concat(lines, m.processLines(len(lines)), blank)
	lines = append(lines, m.choices(len(lines)), m.tableHead(len(lines)+1))
	m.tableHeight = max(1, m.height-1-len(lines))
	return append(lines, m.tableRows(len(lines))...)
}

// roomy reports whether the terminal has more lines than a small one.
func (m *model) roomy() bool { return m.height >= 30 }

// chipLines returns the bars: a block for each group of chips, or a grid if there are too
// many.
func (m *model) chipLines() []string {
	chips := m.chips()
	if len(chips) == 0 {
		return []string{"", m.Cut(" "+m.noChip(), m.width), ""}
	}
	groups := chipGroups(chips, !m.unfolded)
	across := max(1, min(len(groups), m.width/95))
	columns := (m.width - 3*(across-1)) / across
	room := max(8, m.height*2/5)
	if m.roomy() {
		room = m.height / 2
	}
	all := m.blocks(groups, columns, !m.roomy())
	fits := func() bool { return (len(groups)+across-1)/across*len(all[0]) <= room }
	if !fits() {
		all = m.blocks(groups, columns, true)
	}
	if !fits() {
		return m.grid(groups, m.histories(), m.width, m.height-8)
	}
	var lines []string
	for blocks := range slices.Chunk(all, across) {
		for y := range blocks[0] {
			line := page.Each(blocks, func(block []string) string { return m.left(block[y], columns) })
			text := strings.TrimRight(strings.Join(line, m.Paint(page.Dim, m.Pick(" │ ", " | "))), " ")
			if text != "" || across > 1 {
				lines = append(lines, text)
			}
		}
	}
	return lines
}

// noChip returns the reason for no bars.
func (m *model) noChip() string {
	p := m.present
	switch {
	case m.reel != nil:
		return "No device is open at this moment."
	case p.Ended != "":
		return "No device was opened."
	case p.Doing != "":
		return "No device is known yet: " + m.clean(p.Doing) + m.Pick("…", "...")
	case m.output:
		return "The command has opened no device yet."
	case p.Others != "":
		return "None of your processes has a device open."
	}
	return "No process has a device open."
}

// blocks returns the lines of each group, padded to the tallest one.
func (m *model) blocks(groups []chipGroup, columns int, few bool) (blocks [][]string) {
	ranges := slices.ContainsFunc(groups, func(g chipGroup) bool { return len(g) > 1 })
	tallest := 0
	for i := range groups {
		b := &chipBlock{painter: m.painter, chipGroup: groups[i], width: columns, few: few, ranges: ranges, history: m.histories()}
		blocks = append(blocks, b.lines())
		tallest = max(tallest, len(blocks[i]))
	}
	for i, b := range blocks {
		blocks[i] = append(b, make([]string, tallest-len(b))...)
	}
	return blocks
}

// choices returns the line with the settings of the table and the keys that change them. It is
// line y.
func (m *model) choices(y int) string {
	f := &m.filter
	list := ""
	choice := func(key, text string, set bool) {
		st := page.Dim
		if set {
			st = page.Bold
		}
		list += "  "
		from := page.Width(list) - 1
		if !m.once {
			list += m.Paint(page.OnCyan, key) + " "
		}
		list += m.Paint(st, text)
		m.keyZone(y, from, page.Width(list)-1, key)
	}
	by, sorted := "by "+groupings[m.by], orders[m.order].name
	if f.in != nil {
		by += " in " + m.Cut(m.clean(f.in.Text), 24)
	}
	if m.reversed {
		sorted += " " + m.Pick("↑", "^")
	}
	choice("g", by, true)
	choice("s", sorted, true)
	if !m.once {
		chips, pid, region := "all chips", "all processes", "all regions"
		if len(f.chips) > 0 {
			chips = "chip " + page.ShortChips(f.chips, cellIDs)
		}
		if f.pid != 0 {
			pid = fmt.Sprintf("PID %d", f.pid)
		}
		if f.region > 0 {
			region = alloc.Regions[f.region-1].String()
		}
		choice("c", chips, len(f.chips) > 0)
		choice("p", pid, f.pid != 0)
		choice("r", region, f.region > 0)
		choice("/", m.clean(cmp.Or(f.text, "all")), f.text != "")
	}
	return m.Cut(list[1:], m.width)
}

// footer returns the last line, which is line y: the input, an answer to it, or the keys.
func (m *model) footer(y int) string {
	if m.prompt != promptNone {
		before, hint := "/", "text or regular expression, Enter, Esc "
		if m.prompt == promptChips {
			before, hint = "chips: ", "0-7,12 or nothing for all, Enter, Esc "
		}
		return m.ends(" "+m.Paint(page.Bold, before+m.clean(m.typed))+m.Paint(page.Reverse, " "), m.Paint(page.Dim, hint), m.width)
	}
	if m.answer != "" {
		return m.Cut(" "+m.Paint(page.Yellow, m.clean(m.answer)), m.width)
	}
	at := ""
	if m.page == pageTable && len(m.rows) > 0 {
		at = fmt.Sprintf("%s of %s ", page.Grouped(uint64(m.cursor+1)), page.Grouped(uint64(len(m.rows))))
	}
	line, columns := "", page.Width(at)
	for _, k := range m.keys() {
		text := " " + m.Paint(page.OnCyan, k.shown) + " " + k.does + " "
		if columns += page.Width(text); columns <= m.width {
			m.keyZone(y, page.Width(line), page.Width(line+text), k.key)
			line += text
		}
	}
	return m.ends(line, m.Paint(page.Dim, at), m.width)
}

// A footerKey is a key of the footer, its text, and its action.
type footerKey struct{ key, shown, does string }

// keys returns the keys of the footer, most important first.
func (m *model) keys() []footerKey {
	if m.page != pageTable {
		list := []footerKey{{"esc", "Esc", "back"}, {"", m.Pick("↑ ↓", "up, down"), "scroll"}}
		if m.page == pageStack {
			frames := "all frames"
			if m.allFrames {
				frames = "own frames"
			}
			list = append(list, footerKey{"a", "a", frames}, footerKey{"", m.Pick("← →", "left, right"), "long names"})
		}
		return list
	}
	open, fold := "open", "unfold"
	if m.by == byStack && (len(m.rows) == 0 || !m.present.several(m.rows[m.cursor])) {
		open = "stack"
	}
	if m.unfolded {
		fold = "fold"
	}
	list := []footerKey{{"q", "q", "quit"}, {"?", "?", "help"}, {"enter", m.Pick("↵", "Enter"), open}, {"m", "m", "mark"}, {"t", "t", "graph"}}
	if m.reel != nil {
		list = append(list, footerKey{"", m.Pick("← →", "left, right"), "time"}, footerKey{"n", "n N", "next stop"})
	} else {
		list = append(list, footerKey{"space", "Space", "pause"})
	}
	switch {
	case m.output:
		list = append(list, footerKey{"o", "o", "output"})
	case len(m.present.Notes) > 0:
		list = append(list, footerKey{"o", "o", "notes"})
	}
	return append(list, footerKey{"f", "f", fold})
}

// scrolled adds the lines of the text that fit, and bounds the scrolling.
func (m *model) scrolled(lines, text []string, shift int) []string {
	room := max(1, m.height-1-len(lines))
	m.scroll = max(0, min(m.scroll, len(text)-room))
	for _, line := range text[m.scroll:min(len(text), m.scroll+room)] {
		if shift > 0 { // the kind of frame stays
			line = ansi.Truncate(line, kindColumns, "") + ansi.TruncateLeft(line, kindColumns+shift, "")
		}
		lines = append(lines, m.Cut(line, m.width))
	}
	return lines
}
