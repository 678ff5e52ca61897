package top

import (
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A request is what the model asks of the view after a key.
type request int

const (
	nothing request = iota
	quit
	mark
	unmark
	seek
	sampleAgain
)

// A binding is a line of the help: a key and what it does.
type binding struct{ key, does string }

// help is the keys, and the meaning of the figures.
var help = []struct {
	title string
	list  []binding
}{
	{"View", []binding{
		{"↑ ↓", "select a row (or k j); PgUp PgDn Home End go further"},
		{"Enter", "the call stack of a row; the stacks of a group, or of a row with several"},
		{"a", "in a call stack: all frames, or only the operation and your own code"},
		{"Esc", "back; at the top level, clear the filter"},
		{"Space", "pause, and resume"},
		{"m  M", "set a mark: later allocations show as growth; remove the mark"},
		{"f", "fold similar chips, or unfold them"},
		{"t", "graph: the history of each region of each chip"},
		{"o", "output of the traced command, and notes"},
		{"mouse", "click a row, a process, a column, or a key; the wheel scrolls; with Shift, the terminal selects text"},
	}},
	{"Recording", []binding{
		{"← →", "back and forward by a hundredth of it, with Shift by a tenth; or click its bar"},
		{",  .", "the previous event, the next event"},
		{"n  N", "the next peak (▲), mark (┼) or failed allocation (!), the previous one"},
		{"m", "mark this moment: later moments show allocations since then as growth"},
	}},
	{"Arrange", []binding{
		{"g  G", "group by stack, op, line, component, file, owner, type, size, process, chip"},
		{"s  S", "sort by size, count, growth, rate, age, name; reverse the order"},
	}},
	{"Filter", []binding{
		{"/", "by text: name, component, holder, or any frame as FILE:LINE FUNCTION; a regular expression"},
		{"c", "by chip: 3, or 0-7,12; nothing for all"},
		{"]  [", "the next chip, the previous one"},
		{"p  P", "the next process, the previous one: bars show its share"},
		{"r  R", "the next region, the previous one"},
	}},
	{"Chips", []binding{
		{"DRAM", "reserved in all banks of the chip; the history beside the bar is scaled from its lowest to its highest use"},
		{"▒", "the memory of other users, if only your own processes are shown"},
		{page.L1PerCore, "the L1 of the fullest core of the chip: tensors fill it from the right; on the left are the circular and dataflow buffers (CBs, DFBs) that the largest program needs when it runs; kernels have a separate ring buffer"},
		{"L1_SMALL", "a part of each core's L1, reserved for small buffers of operations"},
		{"TRACE, host", "a part of the DRAM, reserved for traces; memory of the host that the chip reads"},
		{"used, peak", "the current use; the highest so far, which is the line in a bar"},
		{"0-2,4-23", "similar chips are one block: figures and bars show the least and the most of them"},
	}},
	{"Processes", []binding{
		{"USER", "the user of the process"},
		{"DRAM", "of all chips that it uses"},
		{"L1 PER CORE", "its tensors, on the core where they take most"},
		{"PROGRAM", "the L1 of a core that its largest program needs when it runs"},
		{"HOST", "its resident memory on the host"},
		{"FOR", "how long ttmem has seen it"},
	}},
	{"Live memory", []binding{
		{"ALL BANKS", "bytes over all banks of all chips; blue, /core: bytes of the largest program on its fullest core"},
		{"%", "share of the list"},
		{"BUFFERS", "number of buffers; 3 CBs are circular or dataflow buffers"},
		{"CBs", "bytes of circular buffers on the fullest core, if the group also has buffers"},
		{"GROWTH", "allocated after the mark and still live; 3 CBs are circular buffers"},
		{"RATE/s", "allocations per second"},
		{"FOR", "how long at least one of them has been live"},
		{"CHIPS, PID", "number of chips; process"},
		{"IN", "DRAM, L1, CB (circular buffers in L1), small (L1_SMALL), trace, host, or mixed"},
		{heldBy, "the owner of the most bytes, such as model.layers[*].wq, and the number of others; Enter lists all"},
	}},
}

// press handles a key.
func (m *model) press(key string) request {
	m.answer = ""
	if key == "ctrl+c" {
		return quit
	}
	if m.prompt != promptNone {
		m.edit(key)
		return nothing
	}
	switch key {
	case "q":
		if m.page != pageTable {
			m.page = pageTable
			return nothing
		}
		return quit
	case "?", "h", "f1":
		m.turn(pageHelp)
		return nothing
	case "esc":
		m.back()
		return nothing
	case "o":
		m.turn(pageOutput)
		if m.page == pageOutput {
			m.scrollPage("end")
		}
		return nothing
	case "t":
		m.turn(pageHistory)
		return nothing
	case "space":
		m.paused = !m.paused
		if m.paused {
			return nothing
		}
		return sampleAgain
	case "m":
		if m.present != nil && m.present.Ended != "" && m.reel == nil {
			m.answer = "no mark set: there are no more events"
			return nothing
		}
		m.paused = false
		m.sortBy(byGrowth)
		return mark
	case "M":
		if m.order == byGrowth {
			m.sortBy(bySize)
		}
		return unmark
	}
	switch {
	case m.present == nil:
	case (m.page == pageTable || m.page == pageHistory) && m.scrub(key):
		return seek
	case m.page != pageTable:
		m.scrollPage(key)
	default:
		m.pressInTable(key)
	}
	return nothing
}

// turn shows a page, or returns from it.
func (m *model) turn(to screen) {
	if m.page == to {
		to = pageTable
	}
	m.page, m.scroll, m.shift = to, 0, 0
}

// moved returns by how many lines a key moves; 0 if it does not. pageful is the number for PgDn.
func moved(key string, pageful int) (lines int) {
	const whole = 1 << 30
	return map[string]int{
		"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -pageful, "ctrl+b": -pageful, "pgdown": pageful, "ctrl+f": pageful,
		"home": -whole, "end": whole,
	}[key]
}

func (m *model) pressInTable(key string) {
	if lines := moved(key, max(1, m.tableHeight-1)); lines != 0 {
		m.move(lines)
		return
	}
	by := 1
	switch key {
	case "G", "shift+tab", "[", "P", "R":
		by = -1
	}
	switch key {
	case "enter":
		m.open()
		return
	case "s":
		next := (m.order + 1) % len(orders)
		if next == byGrowth && !m.present.Marked {
			next++
		}
		if next == byRate && !m.live() {
			next++
		}
		m.sortBy(next)
		return
	case "f":
		m.unfolded = !m.unfolded
		return
	case "/":
		m.prompt, m.typed = promptText, m.filter.text
		return
	case "c":
		m.prompt, m.typed = promptChips, formatIDs(m.filter.chips)
		return
	case "g", "tab", "G", "shift+tab":
		m.by = (m.by + by + len(groupings)) % len(groupings)
	case "S":
		m.reversed = !m.reversed
	case "]", "[":
		m.stepChip(by)
	case "p", "P":
		m.filter.pid = step(m.pids(), 0, m.filter.pid, by)
	case "r", "R":
		n := len(alloc.Regions) + 1
		m.filter.region = (m.filter.region + by + n) % n
	default:
		return
	}
	m.regroup()
}

func (m *model) scrollPage(key string) {
	m.scroll += moved(key, max(1, m.height-4))
	switch key {
	case "home":
		m.shift = 0
	case "right", "l":
		m.shift += 8
	case "left":
		m.shift = max(0, m.shift-8)
	case "enter":
		m.page = pageTable
	case "a":
		m.allFrames = !m.allFrames
	}
}

// edit handles a key while the user types.
func (m *model) edit(key string) {
	switch key {
	case "enter":
		m.accept()
	case "esc":
		m.prompt = promptNone
	case "backspace":
		if r := []rune(m.typed); len(r) > 0 {
			m.typed = string(r[:len(r)-1])
		}
	case "ctrl+u":
		m.typed = ""
	case "space":
		m.typed += " "
	default:
		if len([]rune(key)) == 1 {
			m.typed += key
		}
	}
}

// paste inserts pasted text while the user types.
func (m *model) paste(text string) {
	if m.prompt != promptNone {
		m.typed += m.clean(strings.TrimSpace(text))
	}
}
