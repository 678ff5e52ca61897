package alloc

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// HeldBy says who holds a buffer: held by model.layers[3].wq · bf16[32,32] TILE. It is "" if nothing
// is known of that.
func HeldBy(o memory.Owner, separator string) string {
	text := page.Clean(o.Tensor)
	if o.Path != "" {
		text = "held by " + page.Clean(o.Path)
		if o.Tensor != "" {
			text += separator + page.Clean(o.Tensor)
		}
	}
	return text
}

// Line is the title of a row with who holds it. That replaces a call stack that is not known.
func (n *Namer) Line(a *Row, separator string) string {
	title, held := a.WithCaller(n.Title(a, separator)), HeldBy(a.Owner, separator)
	switch {
	case held == "":
		return title
	case a.Stack == nil && a.Owner.Path != "":
		return held
	}
	return title + ", " + held
}

// Holders are who holds the buffers of a row, the most bytes first.
type Holders []analyze.Holder

// Add adds those of another row.
func (h *Holders) Add(other Holders) {
	if len(other) == 0 {
		return
	}
	list := slices.Clone(*h)
	index := make(map[string]int, len(list))
	for i := range list {
		index[name.FoldOwner(list[i].Path)] = i
	}
	for _, one := range other {
		path := name.FoldOwner(one.Path)
		i, known := index[path]
		if !known {
			list = append(list, one)
			continue
		}
		list[i].Path, list[i].Buffers = path, slices.Concat(list[i].Buffers, one.Buffers)
		if list[i].Add(one.Amount); list[i].Tensor != one.Tensor {
			list[i].Tensor = ""
		}
	}
	slices.SortStableFunc(list, func(a, b analyze.Holder) int { return cmp.Compare(b.Bytes, a.Bytes) })
	*h = list
}

// Since counts the buffers that were allocated after a time.
func (h Holders) Since(ns uint64) (n memory.Amount) {
	for _, one := range h {
		for _, b := range one.Buffers {
			if b.SinceNs > ns {
				n.Add(memory.Amount{Count: 1, Bytes: b.AllocatedBytes()})
			}
		}
	}
	return n
}

// Text names the holder of the most bytes: held by model.layers[*].wq, and 2 more. It is "" if none is
// known.
func (h Holders) Text(separator string) string {
	if len(h) == 0 {
		return ""
	}
	text := HeldBy(h[0].Owner, separator)
	if len(h) > 1 {
		text += fmt.Sprintf(", and %s more", page.Grouped(len(h)-1))
	}
	return text
}

// Split returns the parts of the buffers of a call site, each with its first measure: without a stack, by
// owner, or by a class that the stack does not tell, one for each of its holders, and otherwise one with all
// of them. holders are those that analyze.Holders.Split returns.
func Split(a Row, all memory.Amount, holders []analyze.Holder, by string) (parts []*Row) {
	part := func(amount memory.Amount, holders []analyze.Holder) {
		a := a
		a.Amounts = []memory.Amount{amount}
		a.Holders = slices.DeleteFunc(slices.Clone(holders), func(h analyze.Holder) bool { return h.Path == "" })
		a.Mix.Add(a.Class(), amount.Count)
		parts = append(parts, &a)
	}
	if len(holders) == 0 || a.Stack != nil && by != "owner" && (by != "class" || a.Class() != nil) {
		part(all, holders)
		return parts
	}
	for i, h := range holders {
		a.Owner, a.OwnerClass = h.Owner, h.Class
		part(h.Amount, holders[i:i+1])
	}
	return parts
}

// Parts is Split for a call site.
func (n *Namer) Parts(s *memory.Site, all memory.Amount, holders []analyze.Holder, by string) []*Row {
	row := RowOf(s)
	row.Site = n.Site(s.Stack)
	return Split(row, all, holders, by)
}

// AtPeak returns the buffers of a peak, for a grouping, and the memory of the program that ran. The only measure
// is what was live at the peak.
func (n *Namer) AtPeak(peak *memory.RegionPeak, holders *analyze.Holders, by string) (buffers, program []*Row) {
	for i := range peak.Holders {
		h := &peak.Holders[i]
		held := holders.Split(&h.Site, h.Amount, peak.TimeNs, peak.Region == event.L1)
		buffers = append(buffers, n.Parts(&h.Site, h.Amount, held, by)...)
	}
	for i := range peak.Programs {
		g := &peak.Programs[i]
		site := memory.Site{PID: g.PID, Devices: []int{peak.Device}, Region: event.CB, Stack: g.Stack, Static: g.Kind, BeforeAttach: g.BeforeAttach}
		program = append(program, n.Parts(&site, memory.Amount{Count: g.Count, Bytes: g.Bytes}, nil, by)...)
	}
	return buffers, program
}

// MatchedBy reports whether a pattern matches one of them.
func (h Holders) MatchedBy(pattern *regexp.Regexp) bool {
	return slices.ContainsFunc(h, func(one analyze.Holder) bool { return pattern.MatchString(one.Path) })
}

// Growth says how a container of leaked buffers grew: m.debug[…]: 176 → 340 → 504 tensors.
func Growth(p page.Painter, c *analyze.Container) string {
	arrow, h := p.Pick(" → ", " -> "), c.Held
	now := page.Count(h[2], "tensor")
	if c.AtLeast {
		now = "at least " + now
	}
	return fmt.Sprintf("%s: %d%s%d%s%s", strings.ReplaceAll(page.Clean(c.Owner), "…", p.Pick("…", "...")), h[0], arrow, h[1], arrow, now)
}
