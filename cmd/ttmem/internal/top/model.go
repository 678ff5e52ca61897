package top

import (
	"cmp"
	"fmt"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A screen is a page of the view.
type screen int

const (
	pageTable screen = iota
	pageStack
	pageHelp
	pageOutput
	pageHistory
)

// The kinds of prompts.
const (
	promptNone = iota
	promptText
	promptChips
)

// model is the content of the view and its settings. It is pure: it reads no source and writes to
// no terminal.
type model struct {
	painter
	width, height int
	// once leaves out everything that needs keys.
	once bool
	// output is true if there is output of a traced command.
	output bool
	// clock is zero if times are not shown by the wall clock.
	clock page.Clock
	users page.UserNames

	present *Present
	paused  bool
	// reel is the position in a recording; nil if the source is not a recording.
	reel *reel
	// history has the timelines of the bars.
	history histories
	// zones react to clicks.
	zones []zone

	arrangement
	// opened are the arrangements that Esc returns to.
	opened   []arrangement
	unfolded bool
	// allFrames is true if pageStack shows all frames: see name.Fold.
	allFrames bool

	rows []*alloc.Row
	// bytes is the sum of the rows, and held is true if the holder of one is known.
	bytes uint64
	held  bool
	// cursor is the selected row.
	cursor, offset int
	tableHeight    int

	page screen
	// shown is the row that pageStack shows.
	shown         *alloc.Row
	scroll, shift int

	prompt int
	typed  string
	answer string // the answer to the last key
}

// show shows a new content.
func (m *model) show(p *Present) {
	if m.paused {
		return
	}
	m.present = p
	if m.reel != nil && m.reel.at.Number == p.Number {
		m.reel.at.TimeNs = p.StateNs
	}
	if m.reel == nil {
		m.history = newHistories(p.Timelines, p.NowNs)
	} else if m.history.lines == nil {
		_, last := m.reel.Span()
		m.history = newHistories(m.reel.Timelines(), last.TimeNs)
	}
	m.arrange()
}

// arrange computes the rows and keeps the selected one selected.
func (m *model) arrange() {
	if m.present == nil {
		return
	}
	m.rows, m.bytes, m.held = m.present.rows(&m.arrangement), 0, false
	for _, r := range m.rows {
		m.bytes, m.held = m.bytes+r.Amounts[live].Bytes, m.held || len(r.Holders) > 0
	}
	if m.shown != nil {
		if i := m.find(m.shown.Key); i >= 0 {
			m.shown = m.rows[i]
		}
	}
	if i := m.find(m.selected); i >= 0 {
		m.cursor = i
	}
	m.move(0)
}

func (m *model) find(key alloc.Key) int {
	return slices.IndexFunc(m.rows, func(r *alloc.Row) bool { return r.Key == key })
}

// move moves the selection by n rows. A selection at the top stays at the top when rows
// move, to show the largest.
func (m *model) move(n int) {
	m.cursor = max(0, min(m.cursor+n, len(m.rows)-1))
	m.selected = alloc.Key{}
	if m.cursor > 0 {
		m.selected = m.rows[m.cursor].Key
	}
}

// regroup shows the rows of another grouping.
func (m *model) regroup() {
	m.selected, m.cursor, m.offset = alloc.Key{}, 0, 0
	m.arrange()
}

// sortBy changes the order.
func (m *model) sortBy(order int) {
	m.order, m.reversed = order, false
	m.regroup()
}

// open opens the selected row: it shows a stack, or the stacks of another row.
func (m *model) open() {
	if m.cursor >= len(m.rows) {
		return
	}
	r := m.rows[m.cursor]
	if m.by == byStack && !m.present.several(r) {
		m.page, m.shown, m.scroll, m.shift = pageStack, r, 0, 0
		return
	}
	m.selected = r.Key
	m.opened = append(m.opened, m.arrangement)
	m.filter.in, m.filter.inBy, m.by = r, m.by, byStack
	m.regroup()
}

// back goes back by one step, if there is one.
func (m *model) back() {
	switch {
	case m.page != pageTable:
		m.page = pageTable
	case len(m.opened) > 0:
		m.arrangement = m.opened[len(m.opened)-1]
		m.opened = m.opened[:len(m.opened)-1]
		m.arrange()
	case m.filter.text != "" || m.filter.pid != 0 || m.filter.region != 0 || len(m.filter.chips) > 0:
		m.filter = filter{}
		m.regroup()
	}
}

// pids returns the running processes.
func (m *model) pids() (pids []int) {
	for i := range m.present.Processes {
		if p := &m.present.Processes[i]; p.Exit == nil {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// live reports whether events arrive as they happen.
func (m *model) live() bool { return m.reel == nil && m.present.Live() }

// devices returns all chips, with what all users have of them if that is known.
func (m *model) devices() []memory.Device {
	if m.present.Chips != nil {
		return m.present.Chips
	}
	return m.present.Devices
}

// chipIDs returns the ids of all chips.
func (m *model) chipIDs() []int {
	return page.Each(m.devices(), func(d memory.Device) int { return d.ID })
}

// chips returns the selected chips. If a process is selected, they have its part.
func (m *model) chips() (list []chip) {
	all, split := m.devices(), m.present.Chips != nil
	if p := m.process(); p != nil {
		all, split = p.Devices, false
	}
	for i := range all {
		one := chip{Device: &all[i]}
		if len(m.filter.chips) > 0 && !slices.Contains(m.filter.chips, one.ID) {
			continue
		}
		if split {
			one.own = &memory.Device{ID: one.ID}
			if at := slices.IndexFunc(m.present.Devices, func(d memory.Device) bool { return d.ID == one.ID }); at >= 0 {
				one.own = &m.present.Devices[at]
			}
		}
		list = append(list, one)
	}
	return list
}

// process returns the selected process; nil if none is, or it has ended.
func (m *model) process() *memory.Process {
	for i := range m.present.Processes {
		if p := &m.present.Processes[i]; p.PID == m.filter.pid && p.Exit == nil && p.PID != 0 {
			return p
		}
	}
	return nil
}

// step returns the next or previous value in a list. The value before the first is all, which
// selects everything.
func step(list []int, all, present, by int) int {
	list = append([]int{all}, list...)
	at := max(0, slices.Index(list, present))
	return list[(at+by+len(list))%len(list)]
}

// stepChip selects the next chip, or all chips after the last.
func (m *model) stepChip(by int) {
	const all = -1
	present := all
	if len(m.filter.chips) == 1 {
		present = m.filter.chips[0]
	}
	m.filter.chips = nil
	if id := step(m.chipIDs(), all, present, by); id != all {
		m.filter.chips = []int{id}
	}
}

// accept applies what was typed.
func (m *model) accept() {
	switch m.prompt {
	case promptText:
		m.filter.text = m.typed
	case promptChips:
		ids, err := page.ParseChips(m.typed)
		if err != nil {
			m.answer = err.Error()
			break
		}
		have := m.chipIDs()
		if i := slices.IndexFunc(ids, func(id int) bool { return !slices.Contains(have, id) }); i >= 0 {
			m.answer = fmt.Sprintf("no chip %d; available: %s", ids[i], cmp.Or(formatIDs(have), "none yet"))
			break
		}
		m.filter.chips = ids
	}
	m.prompt = promptNone
	m.regroup()
}

// ago returns how long before the present a time is.
func (m *model) ago(ns uint64) string {
	return formatAge(m.present.NowNs - min(m.present.NowNs, ns))
}
