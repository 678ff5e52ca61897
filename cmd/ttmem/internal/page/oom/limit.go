package oom

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// limitNames are the names of what was needed, and of what there was.
var limitNames = map[analyze.Cause][2]string{
	analyze.StaticTooLarge: {"program's buffers end at", "L1 ends at"}, analyze.TraceTooSmall: {"traces need", "trace region has"},
	analyze.KernelConfigTooSmall: {"program needs", "buffer has"}, analyze.Refused: {"needed", "available"},
}

// writeLimit writes a failure that is not one of an allocator: what was needed and available, in the
// figures of the library's message, and what helps.
func (p *Page) writeLimit(out *bufio.Writer, layout page.Layout, f *memory.Failure) {
	cause, e := analyze.CauseOf(f), f.Evidence
	l, _ := event.LimitsIn(f.Message)
	line := func(name string, n uint64) {
		if n > 0 {
			writeFigure(out, layout, page.Columns{-27, 14}, name, fmt.Sprint(n)+" B", page.Bytes(n), "")
		}
	}
	names := limitNames[cause]
	line(names[0], l.NeededBytes)
	line(names[1], l.AvailableBytes)
	if l.AvailableBytes > 0 && l.NeededBytes > l.AvailableBytes {
		line("short by", l.NeededBytes-l.AvailableBytes)
	}
	if l.NeededBytes == 0 && cause != analyze.Refused {
		layout.Write(out, 1, page.NoStyle, page.FirstLine(f.Message))
		if by := FreedBy(f); by != "" {
			layout.Write(out, 1, page.NoStyle, by)
		}
	}
	if cause == analyze.StaticTooLarge {
		layout.Write(out, 1, page.Bold, "Too large by themselves"+onCores(l.Cores)+": nothing to free. Give the program smaller buffers.")
	}
	p.writeRemedies(out, layout, f)
	if e == nil {
		return
	}
	p.writeStatics(out, layout, f, fmt.Sprintf("Buffers of program %d, on each of their cores:", f.ProgramID))
	switch {
	case cause != analyze.TraceTooSmall && cause != analyze.Refused:
	case e.To > 0:
		layout.Write(out, 1, page.Bold, fmt.Sprintf("In the way, lowest first: %s in each bank (%s, between %#x and %#x).",
			page.Bytes(e.Blocking.BytesPerBank), page.Count(e.Blocking.Count, "buffer"), e.From, e.To))
		writeProof(out, layout, p.proofsOf(f).free)
		p.writeBlames(out, layout, f, e.Blockers, e.Blocking)
	case cause == analyze.Refused && e.Live.Count == 0 && l.Setting == "":
		layout.Write(out, 1, page.Bold, "No tensor of the process was in L1: nothing to free.")
	}
	if e.Live.Count > e.Blocking.Count {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("All live buffers in %s: %s in each bank, %s.",
			e.Region, page.Bytes(e.Live.BytesPerBank), page.Count(e.Live.Count, "buffer")))
		p.writeBlames(out, layout, f, e.Holders, e.Live)
	}
}

// writeRemedies writes what to set or to call.
func (p *Page) writeRemedies(out *bufio.Writer, layout page.Layout, f *memory.Failure) {
	proofs := p.proofsOf(f)
	if cached := analyze.ProgramCache(f); cached.Count > 0 {
		layout.Write(out, 1, page.Bold, fmt.Sprintf("device.clear_program_cache() frees %s of each bank (%s).", page.Bytes(cached.Bytes), page.Count(cached.Count, "buffer")))
		writeProof(out, layout, proofs.clear)
	}
	if s, ok := analyze.SettingFor(f); ok {
		more := "or more"
		if s.AtMost {
			more = "or less"
		}
		layout.Write(out, 1, page.Bold, fmt.Sprintf("It fits if the device is opened with %s=%d %s.", s.Name, s.Bytes, more))
		writeProof(out, layout, proofs.setting)
	}
	p.writeRemedy(out, layout, f)
}

// writeOperations writes the operations that failed for another reason than memory.
func (p *Page) writeOperations(out *bufio.Writer, layout page.Layout) {
	if len(p.Operations) == 0 {
		return
	}
	newestFirst := slices.Clone(p.Operations)
	slices.Reverse(newestFirst)
	groups := page.Alike(newestFirst, func(a, b *memory.Failure) bool {
		return a.PID == b.PID && memory.StackID(a.Stack) == memory.StackID(b.Stack) && page.FirstLine(a.Message) == page.FirstLine(b.Message)
	})
	slices.Reverse(groups)
	fmt.Fprintln(out)
	layout.Write(out, 0, page.Dim, page.Count(uint64(len(p.Operations)), "operation")+" failed for a reason other than memory")
	shown, omitted := page.Newest(groups, p.Limit)
	for _, g := range shown {
		f := g[0]
		fmt.Fprintln(out)
		layout.Write(out, 0, page.Green, siteName(layout, f.Stack, false))
		layout.WriteCallers(out, 3, page.Callers(f.Stack.Frames()))
		layout.Write(out, 1, page.Dim, p.processAt(g))
		layout.Write(out, 1, page.NoStyle, page.FirstLine(f.Message))
		if by := FreedBy(f); by != "" {
			layout.Write(out, 1, page.NoStyle, by)
		}
	}
	if omitted > 0 {
		fmt.Fprintln(out)
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("and %s of failure: -n 0 shows all", page.Count(uint64(omitted), "earlier kind")))
	}
}

// FreedBy says what may have freed the tensor that an operation used; "" if that is not known.
func FreedBy(f *memory.Failure) string {
	var lines []string
	for _, d := range analyze.FreedBy(f) {
		if calls := page.CallTexts(name.UserCalls(d.FreedBy.Frames())); len(calls) > 0 && !slices.Contains(lines, calls[0]) {
			lines = append(lines, calls[0])
		}
	}
	if len(lines) == 0 {
		return ""
	}
	text := "tensors were deallocated by " + strings.Join(lines[:min(len(lines), 2)], " and ")
	if more := len(lines) - 2; more > 0 {
		text += fmt.Sprintf(" and %d other lines", more)
	}
	return text
}
