package oom

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// groups returns the failures by call site, request and cause. Groups are in order of their
// newest failures, which come first in each.
func (p *Page) groups() [][]*memory.Failure {
	newestFirst := slices.Clone(p.Failures)
	slices.Reverse(newestFirst)
	groups := page.Alike(newestFirst, func(a, b *memory.Failure) bool {
		return a.PID == b.PID && memory.StackID(a.Stack) == memory.StackID(b.Stack) && a.BytesPerBank == b.BytesPerBank &&
			(a.ProgramID == b.ProgramID || a.Message == b.Message) && a.Banks == b.Banks && a.Region == b.Region && analyze.CauseOf(a) == analyze.CauseOf(b)
	})
	slices.Reverse(groups)
	return groups
}

// WriteText writes the page.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, p.Others)
	groups := p.groups()
	if len(groups) == 0 {
		layout.Write(out, 0, page.NoStyle, p.nothing())
		p.writeChanged(out, layout.Sized())
		p.writeSmallest(out, layout.Sized())
		p.writeOperations(out, layout)
		return out.Flush()
	}
	layout.Write(out, 0, page.Dim, fmt.Sprintf("%s failed %s", page.Count(uint64(len(p.Failures)), "allocation"), page.Clean(p.Of)))
	shown, omitted := page.Newest(groups, p.Limit)
	for _, g := range shown {
		fmt.Fprintln(out)
		p.writeFailure(out, layout.Sized(), g)
	}
	if omitted > 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("and %s of failure: -n 0 shows all", page.Count(uint64(omitted), "earlier kind")))
	}
	if p.File != "" && slices.ContainsFunc(shown, func(g []*memory.Failure) bool {
		cause := analyze.CauseOf(g[0])
		return g[0].Evidence != nil && (cause == analyze.Fragmented || cause == analyze.Clash)
	}) {
		text := fmt.Sprintf("ttmem map %s --at failure draws the banks at the last failure; failure#1 is the first.", page.Clean(p.File))
		fmt.Fprintln(out)
		layout.Sized().Write(out, 0, page.Dim, text)
	}
	if p.forgotten > 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("%s failed before these; their details are not kept.", page.Count(p.forgotten, "allocation")))
	}
	p.writeChanged(out, layout.Sized())
	p.writeOperations(out, layout)
	return out.Flush()
}

// nothing returns the text of an empty page.
func (p *Page) nothing() string {
	text := "No allocation"
	if len(p.PIDs) > 0 {
		text += " of PID " + page.PIDs(p.PIDs)
	}
	text += " failed"
	if len(p.PIDs) == 0 || p.Of != "in PID "+page.PIDs(p.PIDs) {
		text += " " + page.Clean(p.Of)
	}
	if others := p.Snapshot.FailureCount; others > 0 {
		text += "; " + page.Count(others, "other") + " did"
	}
	return text + "."
}

// verdicts are the reasons of failures in words.
var verdicts = map[analyze.Cause]string{
	analyze.Unexplained: "failed", analyze.TooLarge: "too large", analyze.TooLittle: "not enough free memory",
	analyze.Fragmented: "fragmented", analyze.Clash: "circular buffers overlap a tensor",
	analyze.StaticTooLarge: "circular buffers too large", analyze.TraceTooSmall: "trace region too small",
	analyze.KernelConfigTooSmall: "kernel config buffer too small", analyze.Refused: "refused by the operation",
}

// verdict returns the region of a failure, and the reason in words.
func verdict(f *memory.Failure) string {
	cause, region := analyze.CauseOf(f), f.Region
	text := verdicts[cause]
	if region == event.CB.String() || region == event.Kernel.String() {
		region = event.L1.String()
	}
	if l, _ := event.LimitsIn(f.Message); cause == analyze.StaticTooLarge && l.Static == event.DataflowBuffer {
		text = strings.Replace(text, "circular", "dataflow", 1)
	}
	return region + ": " + text
}

// Brief returns the reason of a failed allocation in one line.
func Brief(f *memory.Failure) string {
	cause, e, text := analyze.CauseOf(f), f.Evidence, verdict(f)
	needs := func(has string, n uint64) string {
		needed, there := page.BytesApart(f.BytesPerBank, n)
		return fmt.Sprintf("%s; needs %s per bank, %s", text, needed, fmt.Sprintf(has, there))
	}
	switch cause {
	case analyze.TooLarge:
		return needs("which has %s", e.Capacity.BytesPerBank)
	case analyze.TooLittle:
		return needs("%s free", e.FreeBytesPerBank)
	case analyze.Fragmented:
		return needs("largest free block %s", e.LargestFreeBytesPerBank)
	case analyze.Clash:
		if e != nil && e.To > e.Lowest && e.Lowest > 0 {
			text += " by " + page.Bytes(e.To-e.Lowest)
		}
		return text
	case analyze.StaticTooLarge, analyze.TraceTooSmall, analyze.KernelConfigTooSmall, analyze.Refused:
		if l, _ := event.LimitsIn(f.Message); l.NeededBytes > 0 && l.AvailableBytes > 0 {
			return fmt.Sprintf("%s; needs %d B, has %d B%s", text, l.NeededBytes, l.AvailableBytes, onCores(l.Cores))
		}
	}
	return f.Region + ": " + page.FirstLine(f.Message)
}

// onCores names cores in the library's words.
func onCores(cores string) string {
	if cores == "" {
		return ""
	}
	return " on cores " + page.Clean(cores)
}

func (p *Page) writeFailure(out *bufio.Writer, layout page.Layout, group []*memory.Failure) {
	f := group[0]
	cause, at := analyze.CauseOf(f), "on an unknown chip"
	switch l, _ := event.LimitsIn(f.Message); {
	case len(f.Devices) > 0:
		at = "on " + page.Chips(f.Devices)
	case l.Setting != "":
		at = "the device was not opened"
	}
	layout.WriteStyled(out, "", page.BoldRed, verdict(f), "  "+at)
	layout.Write(out, 1, page.Green, siteName(layout, f.Stack, false))
	layout.WriteCallers(out, 3, page.Callers(f.Stack.Frames()))
	layout.Write(out, 1, page.Dim, p.processAt(group))
	if cause == analyze.Unexplained || cause == analyze.Refused {
		layout.Write(out, 1, page.NoStyle, page.FirstLine(f.Message))
	}
	e, proofs := f.Evidence, p.proofsOf(f)
	p.writeWhatIf(out, layout, proofs.whatIf)
	switch {
	case cause > analyze.Clash:
		p.writeLimit(out, layout, f)
		return
	case e == nil:
		return
	case cause == analyze.Clash:
		p.writeClash(out, layout, f)
		return
	}
	p.writeFigures(out, layout, f)
	layout.Write(out, 1, page.Bold, explain(f))
	writeProof(out, layout, proofs.free)
	p.writeRemedies(out, layout, f)
	if e.To > 0 {
		p.writeBlames(out, layout, f, e.Blockers, e.Blocking)
	}
	if e.Live.Count > e.Blocking.Count && cause != analyze.TooLarge {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("All live buffers in %s: %s in each bank, %s.",
			f.Region, page.Bytes(e.Live.BytesPerBank), page.Count(e.Live.Count, "buffer")))
		p.writeBlames(out, layout, f, e.Holders, e.Live)
	}
}

// processAt names the process of a group of failures, and says when they were.
func (p *Page) processAt(group []*memory.Failure) string {
	f := group[0]
	process := strings.TrimRight(p.users.PID(f.PID)+" "+p.process(f), " ") + ", " + p.moment(f.TimeNs)
	if n := len(group); n > 1 {
		process += fmt.Sprintf("; %d times, first %s", n, p.moment(group[n-1].TimeNs))
	}
	return process
}

// moment returns the time of a failure as text.
func (p *Page) moment(ns uint64) string {
	if p.UTC {
		return "at " + p.Clock.UTC(ns) + " UTC"
	}
	if p.Live {
		return page.Seconds(p.Snapshot.TimeNs-min(ns, p.Snapshot.TimeNs)) + " ago"
	}
	if first := page.FirstNs(p.Snapshot, false); first > 0 && first <= ns && page.ForgottenProcesses(p.Snapshot) == 0 {
		return "at " + page.Moment(ns-first)
	}
	return page.Moment(p.Snapshot.TimeNs-min(ns, p.Snapshot.TimeNs)) + " before the end"
}

// writeFigure writes a line with the name of a figure, the figure, and the same in other units.
// If there is no room, the latter has its own line.
func writeFigure(out *bufio.Writer, layout page.Layout, what page.Columns, name, figure, same, more string) {
	line, beside := what.Line("   "+name, figure), page.Right(same, 12)
	if layout.Width > 0 && page.Width(line+beside+more) > layout.Width {
		fmt.Fprintln(out, line)
		line, beside = "", page.Right(same, what.Width()-page.Width(more))
	}
	fmt.Fprintln(out, line+beside+layout.Paint(page.Dim, more))
}

// writeFigures writes the requested bytes and the state of each bank.
func (p *Page) writeFigures(out *bufio.Writer, layout page.Layout, f *memory.Failure) {
	e := f.Evidence
	line := func(name string, n uint64, more string) {
		writeFigure(out, layout, page.Columns{-24, 14}, name, fmt.Sprint(n)+" B", page.Bytes(n), more)
	}
	fmt.Fprintln(out, layout.Paint(page.Dim, fmt.Sprintf("   in each of %d banks", f.Banks)))
	line("requested", f.BytesPerBank, "  "+page.Bytes(f.BytesPerBank*uint64(f.Banks))+" in all")
	if e.Known() {
		line("largest free block", e.LargestFreeBytesPerBank, "")
		line("free", e.FreeBytesPerBank, "")
		line("allocated", e.AllocatedBytesPerBank, "")
		line("capacity", e.Capacity.BytesPerBank, "")
	}
	if n := e.SubDevicesPerBank; n > 0 {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("The loaded sub-device manager keeps %s of each bank for itself.", page.Bytes(n)))
	}
	if e.Counted != nil {
		layout.Write(out, 1, page.NoStyle, countedText(e))
	}
}

// countedText says which figures of the library's message ttmem counts otherwise.
func countedText(e *memory.Evidence) string {
	var list []string
	for _, one := range []struct {
		name          string
		said, counted uint64
	}{
		{"largest free block", e.LargestFreeBytesPerBank, e.Counted.LargestFreeBytes}, {"free", e.FreeBytesPerBank, e.Counted.FreeBytes},
		{"allocated", e.AllocatedBytesPerBank, e.Counted.AllocatedBytes}, {"capacity", e.Capacity.BytesPerBank, e.Counted.CapacityBytes},
	} {
		if one.said != one.counted {
			list = append(list, fmt.Sprintf("%s %d B", one.name, one.counted))
		}
	}
	return "The library's figures; ttmem counts " + strings.Join(list, ", ") + "."
}

// explain says why an allocation failed and what helps.
func explain(f *memory.Failure) string {
	e := f.Evidence
	// This is the place with the fewest bytes; other places may have fewer buffers.
	place := fmt.Sprintf("It fits if you free: %s in each bank (%s, between %#x and %#x).",
		page.Bytes(e.Blocking.BytesPerBank), page.Count(e.Blocking.Count, "buffer"), e.From, e.To)
	if analyze.OnlyCached(e) {
		place = "Only buffers of the program cache are in the way."
	}
	if e.To == 0 {
		place = "The buffers in the way are unknown."
	}
	if e.PerCore {
		place = "Some buffers are on single cores: the buffers in the way are unknown."
	}
	switch analyze.CauseOf(f) {
	case analyze.TooLarge:
		text := "Larger than an empty bank: split it"
		if f.Banks < e.Capacity.Banks {
			text += ", or spread it over more banks"
		}
		if e.Region == event.L1 {
			text += ", or put it into DRAM"
		}
		return text + "."
	case analyze.TooLittle:
		return fmt.Sprintf("Short by %s in each bank. %s", page.Bytes(f.BytesPerBank-e.FreeBytesPerBank), place)
	case analyze.Fragmented:
		return "Enough is free, but no free block is large enough. " + place
	}
	return "Cause unknown: by these figures there was room."
}

// writeClash writes how far a program's static buffers reach into tensors.
func (p *Page) writeClash(out *bufio.Writer, layout page.Layout, f *memory.Failure) {
	e := f.Evidence
	line := func(name string, n uint64, same string) {
		writeFigure(out, layout, page.Columns{-27, 10}, name, fmt.Sprint(n), same, "")
	}
	if e.To == 0 || e.Lowest == 0 {
		layout.Write(out, 1, page.NoStyle, "The overlap is not known.")
		return
	}
	line("program's buffers end at", e.To, fmt.Sprintf("%#x", e.To))
	line("lowest tensor begins at", e.Lowest, fmt.Sprintf("%#x", e.Lowest))
	over := e.To - min(e.To, e.Lowest)
	line("overlap", over, page.Bytes(over))
	if e.Blocking.Count > 0 {
		layout.Write(out, 1, page.Bold, fmt.Sprintf("Below %#x: %s, %s in each bank. Free or move the lowest first, or give the program smaller buffers.",
			e.To, page.Count(e.Blocking.Count, "tensor"), page.Bytes(e.Blocking.BytesPerBank)))
		writeProof(out, layout, p.proofsOf(f).free)
		p.writeRemedy(out, layout, f)
		p.writeBlames(out, layout, f, e.Blockers, e.Blocking)
	}
	p.writeStatics(out, layout, f, fmt.Sprintf("Buffers of program %d above %#x, on each of their cores:", f.ProgramID, e.Lowest))
}

// writeStatics writes a program's static buffers.
func (p *Page) writeStatics(out *bufio.Writer, layout page.Layout, f *memory.Failure, title string) {
	e := f.Evidence
	if len(e.Statics) == 0 {
		return
	}
	layout.Write(out, 1, page.Bold, title)
	columns := page.Columns{14, 10, 12}
	layout.WriteHead(out, columns.Line("from", "to", "bytes"), "  kind, cores")
	for i := range e.Statics {
		s := &e.Statics[i]
		text := columns.Line(fmt.Sprintf("%#x", s.Address), fmt.Sprintf("%#x", s.End()), page.Bytes(s.BytesPerCore)) + "  "
		layout.Beside(out, text, page.NoStyle, strings.ReplaceAll(s.Kind.String(), "_", " ")+", "+alloc.FormatRanges(s.Cores))
	}
}

func siteName(layout page.Layout, stack *event.Stack, beforeAttach bool) string {
	return cmp.Or(page.Clean(name.Of(stack.Frames()).Text(layout.Separator())), alloc.Unknown(stack, beforeAttach))
}

// writeBlames writes the call stacks that allocated the blamed memory, and who holds it. Without a
// stack, each holder has a row.
func (p *Page) writeBlames(out *bufio.Writer, layout page.Layout, f *memory.Failure, list []memory.Blame, all memory.Blame) {
	columns := page.Columns{13, 9, 11}
	layout.WriteHead(out, columns.Line("each bank", "buffers", "from"), "  allocated by")
	rest, names := all, alloc.Namer{}
	for i := range list {
		l := &list[i]
		rest.Count -= min(rest.Count, l.Count)
		rest.BytesPerBank -= min(rest.BytesPerBank, l.BytesPerBank)
		frames := l.Stack.Frames()
		row := alloc.Row{Site: names.Site(l.Stack), Region: f.Evidence.Region, BeforeAttach: l.BeforeAttach}
		for _, part := range alloc.Split(row, memory.Amount{Count: l.Count, Bytes: l.BytesPerBank}, p.holders(f, l), "") {
			site, from := names.Title(part, layout.Separator()), l.Address
			if part.Owner.Path != "" {
				from = slices.MinFunc(part.Holders[0].Buffers, func(a, b *memory.Buffer) int { return cmp.Compare(a.Address, b.Address) }).Address
				site += ", " + alloc.HeldBy(part.Owner, layout.Separator())
			}
			if part.Class().Retained() {
				site += " (retained by the runtime)"
			}
			text := columns.Line(page.Bytes(part.Amounts[0].Bytes), fmt.Sprint(part.Amounts[0].Count), fmt.Sprintf("%#x", from)) + "  "
			indent := layout.Beside(out, text, page.Green, site)
			if part.Owner.Path == "" && len(part.Holders) > 0 {
				layout.Write(out, indent+2, page.NoStyle, part.Holders.Text(layout.Separator()))
			}
			layout.WriteCallers(out, indent+2, page.Callers(frames))
		}
	}
	if rest.Count > 0 {
		layout.Beside(out, columns.Line(page.Bytes(rest.BytesPerBank), fmt.Sprint(rest.Count), "")+"  ", page.NoStyle, "other call sites")
	}
}
