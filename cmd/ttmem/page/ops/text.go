package ops

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/page"
)

// A column shows the bytes of a part, in KiB.
type column struct {
	head  string
	width int
	bytes func(*analyze.Operation) uint64
	// always is true if the column is shown even if no operation has any.
	always bool
}

var columns = []column{
	{"headroom", 9, func(o *analyze.Operation) uint64 { return o.Peak.HeadroomBytes() }, true},
	{"peak", 8, func(o *analyze.Operation) uint64 { return o.Peak.Bytes() }, true},
	{"tensors", 8, func(o *analyze.Operation) uint64 { return o.Peak.TensorBytes }, true},
	{"CBs", 7, func(o *analyze.Operation) uint64 { return o.Peak.CBBytes }, false},
	{"DFBs", 7, func(o *analyze.Operation) uint64 { return o.Peak.DFBBytes }, false},
	{"scratch", 8, func(o *analyze.Operation) uint64 { return o.Peak.ScratchpadBytes }, false},
}

// WriteText writes a line for each operation.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, p.Others)
	all := p.operations()
	list, omitted := page.First(all, p.Limit)
	if len(list) == 0 {
		layout.Write(out, 0, page.NoStyle, p.nothing())
		return out.Flush()
	}
	layout.Write(out, 0, page.Dim, fmt.Sprintf("%s %s; L1 in KiB%s, on the fullest core", page.Count(uint64(len(all)), "operation"), page.Clean(p.Of), capacity(all)))
	fmt.Fprintln(out)
	var shown []column
	for _, c := range columns {
		if c.always || slices.ContainsFunc(list, func(o analyze.Operation) bool { return c.bytes(&o) > 0 }) {
			shown = append(shown, c)
		}
	}
	chips := slices.ContainsFunc(all, func(o analyze.Operation) bool { return o.Peak.Device != all[0].Peak.Device })
	head := ""
	for _, c := range shown {
		head += page.Right(c.head, c.width)
	}
	if chips {
		head += page.Right("chip", 5)
	}
	head += page.Right("core", 6) + page.Right("runs", 7)
	replayed := slices.ContainsFunc(list, func(o analyze.Operation) bool { return o.Replays > 0 })
	if replayed {
		head += page.Right("replays", 9)
	}
	failed := slices.ContainsFunc(list, func(o analyze.Operation) bool { return o.Failures > 0 })
	if failed {
		head += page.Right("failed", 8)
	}
	layout.WriteHead(out, head+"  ", "operation")
	unknown, unseen := false, false
	for i := range list {
		o := &list[i]
		unseen = unseen || o.OnlyReplayed()
		unknown = unknown || o.Runs == 0 && !o.OnlyFailed() && !o.OnlyReplayed()
		p.writeRow(out, layout, shown, chips, replayed, failed, o)
	}
	if omitted > 0 {
		fmt.Fprintf(out, " and %s more: -n 0 lists all\n", page.Grouped(omitted))
	}
	if unknown {
		layout.Sized().Write(out, 0, page.Dim, "?: not reported: by this library, or for programs without ttnn")
	}
	if unseen {
		layout.Sized().Write(out, 0, page.Dim, "Replays without runs are of traces whose capture ttmem did not see: their programs are not known.")
	}
	if p.forgotten > 0 {
		layout.Sized().Write(out, 0, page.NoStyle, fmt.Sprintf("Dropped: %s that ran longest ago.", page.Count(p.forgotten, "call stack")))
	}
	return out.Flush()
}

// capacity is the L1 of a core, if it is the same for all operations.
func capacity(all []analyze.Operation) string {
	bytes := all[0].Peak.CapacityBytes
	if bytes == 0 || slices.ContainsFunc(all, func(o analyze.Operation) bool {
		return o.Peak.CapacityBytes != bytes && !o.OnlyFailed() && !o.OnlyReplayed()
	}) {
		return ""
	}
	return " of " + kib(bytes)
}

func (p *Page) writeRow(out *bufio.Writer, layout page.Layout, shown []column, chips, replayed, failed bool, o *analyze.Operation) {
	line := ""
	for i, c := range shown {
		text := kib(c.bytes(o))
		switch {
		case o.OnlyFailed() || o.OnlyReplayed():
			text = "-"
		case i == 0 && o.Peak.CapacityBytes == 0:
			text = "?"
		}
		line += page.Right(text, c.width)
	}
	if chips {
		line += page.Right(fmt.Sprint(o.Peak.Device), 5)
	}
	core := fmt.Sprintf("%d-%d", o.Peak.X, o.Peak.Y)
	if o.OnlyFailed() || o.OnlyReplayed() {
		core = "-"
	}
	line += page.Right(core, 6) + page.Right(runs(o), 7)
	if replayed {
		line += page.Right(page.Grouped(o.Replays), 9)
	}
	if failed {
		line += page.Right(page.Grouped(o.Failures), 8)
	}
	line += "  "
	title := layout.Separated(o.Key)
	if len(p.Snapshot.Processes) > 1 {
		title = p.names.Users().PID(o.PID) + layout.Separator() + title
	}
	layout.Beside(out, line, page.Level(o.Peak.Bytes(), o.Peak.CapacityBytes), title)
}

// kib writes a number of bytes in KiB without the unit. Less than 1 KiB has one.
func kib(n uint64) string {
	switch {
	case n == 0:
		return "0"
	case n < 1024:
		return page.Bytes(n)
	}
	return fmt.Sprintf("%.1f", float64(n)/1024)
}

// nothing returns the text of an empty page.
func (p *Page) nothing() string {
	if len(p.list) > 0 {
		return fmt.Sprintf("No matching operation ran %s; %s did.", page.Clean(p.Of), page.Count(uint64(len(p.list)), "other"))
	}
	return fmt.Sprintf("No operation ran %s.", page.Clean(p.Of))
}
