package ops

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
)

// WriteText writes a line for each operation.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.WriteOthers(out, p.Others)
	all := p.operations()
	if len(all) == 0 {
		layout.Write(out, 0, page.NoStyle, p.nothing())
		return out.Flush()
	}
	layout.Write(out, 0, page.Dim, fmt.Sprintf("%s %s; L1 in KiB%s, on the fullest core", page.Count(uint64(len(all)), "operation"), page.Clean(p.Of), capacity(all)))
	fmt.Fprintln(out)
	(&table.List{
		Columns: columns(all), Rows: all, Limit: p.Limit, Head: "operation",
		Title: func(r *alloc.Row) string {
			if len(p.Snapshot.Processes) > 1 {
				return p.names.Users().PID(r.PID) + " · " + r.Text
			}
			return r.Text
		},
		Style: func(r *alloc.Row) page.Style {
			return page.Level(r.Operation.Peak.Bytes(), r.Operation.Peak.CapacityBytes)
		},
	}).Write(out, layout)
	shown, _ := page.First(all, p.Limit)
	unseen := slices.ContainsFunc(shown, func(r *alloc.Row) bool { return r.Operation.OnlyReplayed() })
	unknown := slices.ContainsFunc(shown, func(r *alloc.Row) bool {
		return r.Operation.Runs == 0 && !r.Operation.OnlyFailed() && !r.Operation.OnlyReplayed()
	})
	if unknown {
		layout.Sized().Write(out, 0, page.Dim, "?: this library reports no runs, or the programs run without ttnn")
	}
	if unseen {
		layout.Sized().Write(out, 0, page.Dim, "Replays without runs: ttmem did not see the capture of these traces, so their programs are unknown.")
	}
	if p.forgotten > 0 {
		layout.Sized().Write(out, 0, page.NoStyle, fmt.Sprintf("Dropped: %s that ran longest ago.", page.Count(p.forgotten, "call stack")))
	}
	return out.Flush()
}

// capacity is the L1 of a core, if it is the same for all operations.
func capacity(all []*alloc.Row) string {
	bytes := all[0].Operation.Peak.CapacityBytes
	if bytes == 0 || slices.ContainsFunc(all, func(r *alloc.Row) bool {
		o := r.Operation
		return o.Peak.CapacityBytes != bytes && !o.OnlyFailed() && !o.OnlyReplayed()
	}) {
		return ""
	}
	return " of " + kib(bytes)
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
