package eventlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// The columns of a line of a log: those of each line, those of a wide terminal, and those of a
// very wide one. The rest follows, or has its own lines.
var (
	firstColumns = page.Columns{12, 7, -14}     // time, chips, kind
	sizeColumns  = page.Columns{11, 10, 10, -6} // address, size, each, banks
	placeColumns = page.Columns{-25, 8, 15, 8}  // region, buffer, object, process
)

// first is the columns that each line has.
func (l *Log) first() page.Columns {
	if l.UTC {
		return append(page.Columns{page.UTCColumns}, firstColumns[1:]...)
	}
	return firstColumns
}

// row is the columns of a line.
type row struct {
	address, size, each, banks, place, buffer, object string
	// text is the name of the buffer, or the message.
	text  string
	notes []note
}

type note struct {
	text  string
	wrong bool
}

// room returns how many of the three groups of columns fit into a line. The third also leaves
// room for the text.
func (l *Log) room() int {
	few := l.first().Width() + sizeColumns.Width()
	switch width := l.layout.Width; {
	case width == 0 || width >= few+placeColumns.Width()+2+page.LeastBeside:
		return 3
	case width >= few+page.Width(" banks"):
		return 2
	}
	return 1
}

// times separates the size in each bank from the number of banks.
func (l *Log) times() string { return l.layout.Pick(" × ", " x ") }

func (l *Log) appendText(b []byte, e *event.Event, n *analyze.Note) []byte {
	if !l.head {
		l.head = true
		b = l.appendHead(b)
	}
	r := l.row(e, n)
	chips, pid, banks := page.ChipNumbers(e.Devices), "", "   "
	if l.layout.Width > 0 && page.Width(" "+chips) > firstColumns[1] {
		r.text = strings.TrimPrefix(r.text+", chips "+chips, ", ")
		chips = "many"
	}
	if r.banks != "" {
		banks = l.times() + r.banks
	}
	if e.PID != 0 {
		pid = fmt.Sprint(e.PID)
	}
	at := fmt.Sprintf("%.6f", float64(e.TimeNs-min(l.Begin, e.TimeNs))/1e9)
	if l.UTC {
		at = l.supplement.Clock.UTC(e.TimeNs)
	}
	line, text := l.first().Line(at, " "+chips, " "+e.Kind.String()), r.text
	var below []string // parts without room in the line
	room := l.room()
	if room > 1 {
		line += sizeColumns.Line(r.address, r.size, r.each, banks)
	} else {
		below = []string{r.address, r.size, strings.TrimRight(r.each+banks, " ")}
	}
	if room > 2 {
		line += placeColumns.Line("  "+r.place, r.buffer, r.object, pid) + "  "
	} else {
		b = appendLine(b, line)
		object := ""
		if pid != "" {
			pid = "PID " + pid
		}
		if r.buffer != "" {
			object = "buffer " + r.buffer + " at " + r.object
		}
		below = slices.Concat([]string{r.text}, below, []string{pid, r.place, object})
		line, text = page.Blank(page.NameIndent), strings.Join(slices.DeleteFunc(below, func(s string) bool { return s == "" }), ", ")
	}
	if l.layout.Width == 0 { // the notes too are in the line
		for _, note := range r.notes {
			if text != "" {
				text += l.layout.Separator()
			}
			text += note.text
		}
		return l.appendStacks(appendLine(b, line+text), e, n)
	}
	if text == "" && room > 2 {
		b = appendLine(b, line)
	}
	b = l.appendFolded(b, line, page.Green, text)
	for _, note := range r.notes {
		style := page.Dim
		if note.wrong {
			style = page.Red
		}
		b = l.appendFolded(b, page.Blank(page.NameIndent), style, note.text)
	}
	return l.appendStacks(b, e, n)
}

// appendLine appends a line without blanks at its end.
func appendLine(b []byte, line string) []byte {
	return append(append(b, strings.TrimRight(line, " ")...), '\n')
}

// appendFolded appends a text to a line, with as many further lines as needed.
func (l *Log) appendFolded(b []byte, line string, st page.Style, text string) []byte {
	for _, part := range l.layout.Lines(text, page.Width(line)) {
		b = appendLine(b, line+l.layout.Paint(st, part))
		line = page.Blank(page.Width(line))
	}
	return b
}

func (l *Log) appendHead(b []byte) []byte {
	times := "seconds"
	if l.UTC {
		times = page.Left("UTC", page.UTCColumns)
	}
	head, banks := l.first().Line(times, "chips", " event"), l.times()+"banks"
	if room := l.room(); room > 1 {
		head += sizeColumns.Line("address", "size", "per bank", banks)
		if room > 2 {
			region := page.Left("  region", -placeColumns[0]-page.Width(banks)-sizeColumns[3])
			head += region + placeColumns[1:].Line("buffer", "Buffer at", "PID") + "  details"
		}
	}
	return appendLine(b, l.layout.Paint(page.Dim, strings.TrimRight(head, " ")))
}

// row makes the columns of an event.
func (l *Log) row(e *event.Event, n *analyze.Note) row {
	var r row
	switch e.Kind {
	case event.Alloc, event.Free:
		r.setBuffer(e)
		if e.Kind == event.Alloc {
			r.text = l.nameOf(e.Region, e.Stack, e.BeforeAttach)
		} else if b := n.Ended; b != nil {
			r.text = l.ends("freed by ", e.Region, b) + ", " + lived(b.SinceNs, e.TimeNs, b.BeforeAttach)
		} else if by := l.freer(e.Stack); by != "" {
			r.text = "freed by " + by
		}
		r.text += strings.Replace(endedBy(e.Reason), ", by", ", freed by", 1)
		r.notes = l.notes(e, n)
	case event.AllocFailed:
		r.setBuffer(e)
		r.address, r.buffer, r.object = "", "", ""
		if e.SizeBytes == 0 { // the size that a program requested is not known
			r.size, r.each = "", ""
		}
		if e.Region == event.CB {
			r.place = "CB"
		}
		r.text = strings.ReplaceAll(e.Reason.String(), "_", " ") + ": " + l.nameOf(e.Region, e.Stack, false)
		if message := page.FirstLine(e.Message); message != "" {
			r.text += l.layout.Separator() + message
		}
	case event.OperationFailed:
		r.text = l.nameOf(event.CB, e.Stack, false)
		if message := page.FirstLine(e.Message); message != "" {
			r.text += l.layout.Separator() + message
		}
	case event.CBAlloc:
		r.address, r.size = fmt.Sprintf("%#x", e.Address), page.Bytes(e.SizeBytes)
		cores := 0
		for _, c := range e.Cores {
			cores += c.Cores()
		}
		r.each, r.banks = r.size, fmt.Sprint(cores)
		r.place = "CB " + shortStatic(e.StaticKind)
		r.text = fmt.Sprintf("program %d, %s", e.ProgramID, l.nameOf(event.CB, e.Stack, e.BeforeAttach))
		if e.Global {
			r.text += ", in an L1 buffer"
		}
	case event.CBFree, event.KernelUnload:
		r.place = strings.TrimSpace(regionOf(e).String() + " " + shortStatic(e.StaticKind))
		r.text = fmt.Sprintf("program %d%s", e.ProgramID, endedBy(e.Reason))
	case event.ProgramRun:
		r.text = fmt.Sprintf("program %d, %s", e.ProgramID, l.nameOf(event.CB, e.Stack, false))
		if e.Uses != nil {
			r.text += ", uses " + page.Count(uint64(l.history.UsesOf(e.PID)), "buffer")
			if e.Uses.Partial {
				r.text += " or more"
			}
		}
	case event.TraceBegin, event.TraceEnd, event.TraceReplay, event.TraceRelease:
		r.text = fmt.Sprintf("trace %d, %s", e.ProgramID, l.nameOf(event.CB, e.Stack, false))
		if runs, seen := l.history.TraceRuns(e.PID, e.Devices, e.ProgramID); e.Kind == event.TraceEnd || e.Kind == event.TraceReplay {
			r.text += l.layout.Separator() + tracedText(runs, seen)
		}
	case event.KernelLoad:
		r.place = strings.TrimSpace(regionOf(e).String() + " " + page.KernelKind(e.KernelKind))
		r.size, r.each = page.Bytes(e.SizeBytes), page.TextBytes(e.BytesPerBank)
		r.text = fmt.Sprintf("program %d, %s", e.ProgramID, l.nameOf(event.CB, e.Stack, e.BeforeAttach))
	case event.DeviceOpen:
		r.text = strings.TrimSpace(page.Clean(e.Opened().Board + " " + e.Opened().Arch))
		if e.Mesh {
			r.text = strings.TrimSpace(r.text + " mesh")
		}
		if e.Cause != "" {
			r.text += fmt.Sprintf("%sL1 has %d B per bank from now on: %s", l.layout.Separator(), e.Opened().Capacities[event.L1].BytesPerBank, page.Clean(e.Cause))
		}
	case event.ProcessStart:
		r.text = cmp.Or(page.Clean(e.Started().Command), page.UnknownCommandLine)
		if user := l.supplement.User(e.PID); l.supplement.SeveralUsers() && user != "" {
			r.text = user + ": " + r.text
		}
	case event.ProcessExit:
		if e.ExitStatus != event.UnknownStatus {
			r.text = page.ProcessState(&memory.Process{Exit: &memory.Exit{Status: &e.ExitStatus}})
		}
	case event.Lost:
		r.text = page.Count(e.Count, "event") + " lost: " + page.Clean(e.Cause)
	case event.Mark:
		r.text = page.Clean(e.Cause)
	case event.Reread:
		r.text = "figures are right again: live buffers were read from memory"
	case event.Owner:
		r.text = ownerText(e)
	case event.BufferWrite, event.BufferRead:
		r.place, r.buffer, r.object = e.Region.String(), fmt.Sprint(e.BufferID), fmt.Sprintf("%#x", e.Object)
		if b := l.history.Buffer(e.PID, e.BufferID); b != nil {
			r.address, r.size = fmt.Sprintf("%#x", b.Address), page.Bytes(b.SizeBytes)
		}
		r.text = l.nameOf(e.Region, e.Stack, false)
	case event.HostMemory:
		r.size, r.text = page.Bytes(e.SizeBytes), "resident on the host, at most "+page.Bytes(e.BytesPerBank)
	}
	if e.Reread {
		r.text += ", found by rereading"
	}
	return r
}

// tracedText says how many programs a captured trace runs.
func tracedText(runs []memory.TracedRun, seen bool) string {
	if !seen {
		return "its programs are not known: ttmem did not see its capture"
	}
	var n uint64
	for _, r := range runs {
		n += r.Count
	}
	return "runs " + page.Count(n, "program")
}

// ownerText says who holds a buffer.
func ownerText(e *event.Event) string {
	text := fmt.Sprintf("buffer %d is ", e.BufferID)
	switch {
	case e.BufferID == event.NoBuffer && e.Message == "":
		return "the search for owners ended"
	case e.BufferID == event.NoBuffer:
		return "the search for owners was incomplete: " + page.Clean(e.Message)
	case e.Cause == "":
		return text + "no longer held"
	case e.Message == "":
		return text + "held by " + page.Clean(e.Cause)
	}
	return text + "held by " + page.Clean(e.Cause) + ": " + page.Clean(e.Message)
}

func (r *row) setBuffer(e *event.Event) {
	r.address, r.size = fmt.Sprintf("%#x", e.Address), page.Bytes(e.SizeBytes)
	if e.Banks > 0 {
		r.each, r.banks = page.Bytes(e.BytesPerBank), fmt.Sprint(e.Banks)
	}
	layout := strings.ReplaceAll(e.Layout.String(), "_sharded", "")
	if e.Layout.Sharded() {
		layout += " shards"
	}
	r.place, r.buffer, r.object = e.Region.String()+" "+layout, fmt.Sprint(e.BufferID), fmt.Sprintf("%#x", e.Object)
}

// shortStatic is the kind of a static buffer, in a column.
func shortStatic(k event.StaticKind) string { return strings.ReplaceAll(k.String(), "_buffer", "") }

// endedBy returns the event that freed a buffer which the program did not free itself.
func endedBy(r event.Reason) string {
	switch r {
	case event.ReasonDeviceClose:
		return ", by closing the device"
	case event.ReasonProcessExit:
		return ", by the end of the process"
	}
	return ""
}

// ends says which line allocated a buffer and, after a prefix, which freed it, if that is known.
func (l *Log) ends(freedBy string, region event.Region, u *analyze.Use) string {
	text := l.nameOf(region, u.Stack, u.BeforeAttach)
	if !u.BeforeAttach {
		text = "allocated by " + text
	}
	by := l.freer(u.FreedBy)
	if by == "" {
		return text
	}
	return freedBy + by + ", " + text
}

// freer names the line that freed a buffer or, without one, the function of the library; "" if that
// is not known.
func (l *Log) freer(stack *event.Stack) string {
	if stack == nil {
		return ""
	}
	name := l.site(stack).Name
	return page.Clean(cmp.Or(name.Call.String(), name.Op))
}

// lived is the lifetime of a buffer.
func lived(since, end uint64, before bool) string {
	text := "lived " + page.Duration(end-min(since, end))
	if before {
		text += " or more"
	}
	return text
}

// notes are the notes on an Alloc or a Free, in words.
func (l *Log) notes(e *event.Event, n *analyze.Note) (list []note) {
	wrong := func(format string, args ...any) {
		list = append(list, note{"! " + fmt.Sprintf(format, args...), true})
	}
	if u := n.Freed; u != nil {
		wrong("double free: it was freed %s earlier, %s", page.Duration(e.TimeNs-min(u.EndNs, e.TimeNs)), l.ends("by ", e.Region, u))
	}
	if n.Unseen {
		wrong("free of an unknown buffer: it was allocated before the first event, or that event was lost")
	}
	if b := n.Replaced; b != nil {
		wrong("replaces live buffer %d, %s at %#x, %s: the event of its free is missing",
			b.BufferID, page.Bytes(b.SizeBytes), b.Address, l.nameOf(e.Region, b.Stack, b.BeforeAttach))
	}
	if u := n.Earlier; u != nil {
		of := ""
		if u.PID != e.PID {
			of = fmt.Sprintf(" of PID %d", u.PID)
		}
		list = append(list, note{fmt.Sprintf("the address had %s per bank until %s earlier%s, %s", page.Bytes(u.BytesPerBank),
			page.Duration(e.TimeNs-min(u.EndNs, e.TimeNs)), of, l.ends("freed by ", e.Region, u)), false})
	}
	return list
}

// appendStacks appends the calls of the event and, for a free, of the allocation.
func (l *Log) appendStacks(b []byte, e *event.Event, n *analyze.Note) []byte {
	if !l.Stacks {
		return b
	}
	if e.Kind != event.Free {
		return l.appendFrames(b, "", e.Stack)
	}
	if !e.Reason.IsEnd() {
		b = l.appendFrames(b, "freed by", e.Stack)
	}
	if live := n.Ended; live != nil {
		b = l.appendFrames(b, "allocated by", live.Stack)
	}
	return b
}

// appendFrames appends the calls of a stack, innermost first, a line each, below a title.
func (l *Log) appendFrames(b []byte, title string, s *event.Stack) []byte {
	if title != "" && s != nil {
		b = appendLine(b, page.Blank(page.NameIndent)+l.layout.Paint(page.Dim, title))
	}
	frames := s.Frames()
	if !l.AllFrames {
		frames = name.Fold(frames)
	}
	for i := range frames {
		text, place := page.FrameTexts(&frames[i])
		switch {
		case frames[i].File != "":
			text += "  " + place
		case place != "":
			text += "  in " + place
		}
		for j, part := range l.layout.Lines(page.Clean(text), page.NameIndent+4) {
			b = appendLine(b, page.Blank(page.NameIndent+2+2*min(j, 1))+l.layout.Paint(page.Dim, part))
		}
	}
	return b
}
