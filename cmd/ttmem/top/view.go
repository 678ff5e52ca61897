package top

import (
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// The smallest usable terminal.
const (
	leastWidth  = 60
	leastHeight = 14
)

// frame returns the lines of the screen, none wider than it. There are as many as its
// height, unless the frame is printed once.
func (m *model) frame() []string {
	if m.width < leastWidth || !m.once && m.height < leastHeight {
		return m.tooSmall()
	}
	var lines []string
	lines = append(lines, m.heading())
	if m.present == nil {
		return m.fill(append(lines, "", " Loading…"))
	}
	switch m.page {
	case pageHelp:
		lines = m.scrolled(lines, m.helpLines(), 0)
	case pageOutput:
		lines = m.scrolled(lines, m.outputLines(), 0)
	case pageStack:
		lines = append(lines, m.stackHead()...)
		lines = m.scrolled(lines, m.stackLines(), m.shift)
	default:
		lines = m.tablePage(lines)
	}
	if m.once {
		return lines
	}
	return append(m.fill(lines)[:m.height-1], m.footer())
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
	var lines []string
	for text != "" && len(lines) < max(1, m.height) {
		n := min(len(text), max(1, m.width))
		lines, text = append(lines, text[:n]), text[n:]
	}
	return m.fill(lines)
}

// heading returns the first line: the source and its state.
func (m *model) heading() string {
	title := m.Paint(label, " ttmem top ")
	p := m.present
	if p == nil {
		return title
	}
	state := ""
	notes := ""
	if n := len(p.Notes); n > 0 && !m.once {
		notes = count(uint64(n), "note") + ": o"
	}
	for _, part := range []string{p.Doing, p.Ended, notes} {
		if part != "" {
			state += m.Paint(dim, m.Pick(" · ", " - ")) + m.Paint(yellow, m.clean(part))
		}
	}
	running, buffers := 0, uint64(0)
	for i := range p.Processes {
		if p.Processes[i].Exit == nil {
			running++
			for _, live := range p.Processes[i].Live {
				buffers += live.Buffers
			}
		}
	}
	facts := count(uint64(running), "process") + "  " + count(buffers, "buffer")
	if p.Live() && !m.once {
		facts += "  " + formatShort(uint64(p.eventRate+0.5)) + " " + page.Plural(uint64(p.eventRate+0.5), "event") + "/s"
	}
	facts = m.Paint(dim, facts)
	if p.Marked {
		facts += "  " + m.Paint(label, " mark "+m.markAge()+" ago ")
	}
	if m.paused {
		facts += "  " + m.Paint(pause, " PAUSED ")
	}
	room := m.width - page.Width(title) - page.Width(state) - page.Width(facts) - 3
	return m.ends(title+" "+m.Paint(bold, m.Cut(m.clean(p.Of), max(8, room)))+state, facts, m.width)
}

// warnings returns lines about what may be wrong or missing.
func (m *model) warnings() []string {
	var list []string
	p := m.present
	if n := p.LostEvents(); n > 0 {
		var causes []string
		for cause := range p.Lost {
			causes = append(causes, m.clean(cause))
		}
		slices.Sort(causes)
		list = append(list, m.Paint(alarm, " ! ")+" "+m.Paint(boldRed, count(n, "event")+" lost, totals may be wrong: "+strings.Join(causes, ", ")))
	}
	if n := p.FailureCount; n > 0 {
		last := p.Failures[len(p.Failures)-1]
		list = append(list, m.Paint(alarm, " ! ")+" "+m.Paint(boldRed, count(n, "allocation")+" failed")+
			m.Paint(dim, fmt.Sprintf(", the last %s ago: %s, PID %d", formatAge(p.NowNs-min(p.NowNs, last.TimeNs)), requested(&last), last.PID)))
	}
	if p.Others != "" {
		for _, line := range page.Wrap("Only your own processes are shown: "+m.clean(p.Others), m.width-2) {
			list = append(list, " "+line)
		}
	}
	if p.Unread {
		for _, line := range page.Wrap("The memory of processes that were already running is still being read: totals are incomplete.", m.width-2) {
			list = append(list, " "+m.Paint(yellow, line))
		}
	}
	for i := range list {
		list[i] = m.Cut(list[i], m.width)
	}
	return list
}

// requested describes an allocation that failed.
func requested(f *aggregate.Failure) string {
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
	lines = append(lines, m.warnings()...)
	lines = append(lines, m.chipLines()...)
	roomy := m.height >= 30 && !m.once
	if roomy || m.once {
		lines = append(lines, "")
	}
	lines = append(lines, m.processLines()...)
	if roomy || m.once {
		lines = append(lines, "")
	}
	lines = append(lines, m.choices(), m.tableHead())
	m.tableHeight = max(1, m.height-1-len(lines))
	return append(lines, m.tableRows()...)
}

// chipLines returns the bars: a block for each group of chips, or a grid if there are too
// many.
func (m *model) chipLines() []string {
	devices := m.devices()
	if len(devices) == 0 {
		return []string{"", m.Cut(" "+m.noChip(), m.width), ""}
	}
	groups := chipGroups(devices, !m.unfolded)
	across := max(1, min(len(groups), m.width/95))
	columns := (m.width - 3*(across-1)) / across
	room := max(8, m.height*2/5)
	if m.height >= 30 {
		room = m.height / 2
	}
	var blocks [][]string
	tallest := 0
	for _, few := range []bool{false, true} {
		blocks, tallest = m.blocks(groups, columns, few || m.height < 30 && !m.once)
		if m.once || (len(groups)+across-1)/across*tallest <= room {
			break
		}
		if few {
			return m.grid(groups, m.width, m.height-8)
		}
	}
	var lines []string
	for first := 0; first < len(blocks); first += across {
		row := blocks[first:min(first+across, len(blocks))]
		for y := range tallest {
			var line strings.Builder
			for x, block := range row {
				if x > 0 {
					line.WriteString(m.Paint(dim, m.Pick(" │ ", " | ")))
				}
				if y < len(block) {
					line.WriteString(m.left(block[y], columns))
				} else {
					line.WriteString(page.Blank(columns))
				}
			}
			if text := strings.TrimRight(line.String(), " "); text != "" || across > 1 {
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

// blocks returns the blocks of the groups, and the height of the tallest.
func (m *model) blocks(groups []chipGroup, columns int, few bool) (blocks [][]string, tallest int) {
	ranges := slices.ContainsFunc(groups, func(g chipGroup) bool { return len(g.ids) > 1 })
	for i := range groups {
		b := &chipBlock{painter: m.painter, chipGroup: &groups[i], width: columns, few: few, ranges: ranges}
		blocks = append(blocks, b.lines())
		tallest = max(tallest, len(blocks[i]))
	}
	return blocks, tallest
}

// choices returns the line with the settings of the table and the keys that change them.
func (m *model) choices() string {
	f := &m.filter
	choice := func(key, text string, set bool) string {
		if m.once {
			key = ""
		} else {
			key = m.Paint(label, key) + " "
		}
		if set {
			return key + m.Paint(bold, text)
		}
		return key + m.Paint(dim, text)
	}
	sorted := orders[m.order].name
	if m.reversed {
		sorted += " " + m.Pick("↑", "^")
	}
	chips, pid, region := "all chips", "all processes", "all regions"
	if len(f.chips) > 0 {
		chips = "chip " + formatIDs(f.chips)
	}
	if f.pid != 0 {
		pid = fmt.Sprintf("PID %d", f.pid)
	}
	if f.region > 0 {
		region = alloc.Regions[f.region-1].String()
	}
	text := f.text
	if text == "" {
		text = "all"
	}
	by := "by " + groupings[m.by]
	if f.in != "" {
		by += " in " + m.Cut(m.clean(f.in), 24)
	}
	list := []string{choice("g", by, true), choice("s", sorted, true)}
	if !m.once || len(f.chips)+f.pid+f.region > 0 || f.text != "" {
		list = append(list, choice("c", chips, len(f.chips) > 0), choice("p", pid, f.pid != 0),
			choice("r", region, f.region > 0), choice("/", m.clean(text), f.text != ""))
	}
	return m.Cut(" "+strings.Join(list, "  "), m.width)
}

// footer returns the last line: the input, an answer to it, or the keys.
func (m *model) footer() string {
	switch m.prompt {
	case promptText:
		return m.ends(" "+m.Paint(bold, "/"+m.clean(m.typed))+m.Paint(page.Reverse, " "), m.Paint(dim, "text or regular expression, Enter, Esc "), m.width)
	case promptChips:
		return m.ends(" "+m.Paint(bold, "chips: "+m.clean(m.typed))+m.Paint(page.Reverse, " "), m.Paint(dim, "0-7,12 or nothing for all, Enter, Esc "), m.width)
	}
	if m.answer != "" {
		return m.Cut(" "+m.Paint(yellow, m.clean(m.answer)), m.width)
	}
	at := ""
	if m.page == pageTable && len(m.rows) > 0 {
		at = fmt.Sprintf("%s of %s ", page.Grouped(uint64(m.cursor+1)), page.Grouped(uint64(len(m.rows))))
	}
	line, columns := "", page.Width(at)
	for _, key := range m.keys() {
		text := " " + m.Paint(label, key[0]) + " " + key[1] + " "
		if columns += page.Width(text); columns <= m.width {
			line += text
		}
	}
	return m.ends(line, m.Paint(dim, at), m.width)
}

// keys returns the keys of the footer and what they do, most important first.
func (m *model) keys() [][2]string {
	switch m.page {
	case pageTable:
	case pageStack:
		return [][2]string{{"Esc", "back"}, {m.Pick("↑ ↓", "up, down"), "scroll"}, {m.Pick("← →", "left, right"), "long names"}}
	default:
		return [][2]string{{"Esc", "back"}, {m.Pick("↑ ↓", "up, down"), "scroll"}}
	}
	open, fold, notes := "open", "unfold", "notes"
	if m.by == byStack {
		open = "stack"
	}
	if m.unfolded {
		fold = "fold"
	}
	if m.output {
		notes = "output"
	}
	return [][2]string{{"q", "quit"}, {"?", "help"}, {m.Pick("↵", "Enter"), open}, {"m", "mark"}, {"Space", "pause"}, {"o", notes}, {"f", fold}}
}

// scrolled adds the lines of the text that fit, and bounds the scrolling.
func (m *model) scrolled(lines, text []string, shift int) []string {
	room := max(1, m.height-1-len(lines))
	m.scroll = max(0, min(m.scroll, len(text)-room))
	for _, line := range text[m.scroll:min(len(text), m.scroll+room)] {
		if shift > 0 {
			line = m.shifted(line, shift)
		}
		lines = append(lines, m.Cut(line, m.width))
	}
	return lines
}
