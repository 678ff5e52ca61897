// Package phases is the page of the phases of a run.
package phases

import (
	"bufio"
	"fmt"
	"io"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/phases"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Page is the phases of a run.
type Page struct {
	// Of is their origin: "in model.ttmem".
	Of string
	// Depth is the number of nested calls to show; 0: those that the run spends its time in.
	Depth int
	// Phases are the outermost ones.
	Phases []*phases.Phase
	// Full is true if there were more than are kept.
	Full     bool
	Snapshot *memory.Snapshot // has the processes and capacities
	Notes    []string
}

// A row is a phase in the list, with the number of phases that it is within.
type row struct {
	*phases.Phase
	depth int
}

// shownRows is how many rows are enough: beyond it, calls are not divided further.
const shownRows = 24

// rows are the phases to show. A phase is divided into those of its inner calls if these are several and
// take more than half of all the time.
func (p *Page) rows() (list []row) {
	for _, f := range p.Phases {
		list = append(list, row{f, 0})
	}
	if p.Depth > 0 {
		for i := 0; i < len(list); i++ {
			if list[i].depth+1 < p.Depth {
				list = slices.Insert(list, i+1, inner(list[i])...)
			}
		}
		return list
	}
	var all uint64
	for _, f := range p.Phases {
		all += f.TimeNs
	}
	divided := make(map[*phases.Phase]bool)
	for {
		best := -1
		for i, r := range list {
			if divides(r.Phase) && !divided[r.Phase] && 2*r.TimeNs > all && len(list)+len(r.Inner) <= shownRows {
				best = i
				break
			}
		}
		if best < 0 {
			return list
		}
		divided[list[best].Phase] = true
		list = slices.Insert(list, best+1, inner(list[best])...)
	}
}

// divides reports whether the inner calls of a phase say more than the phase: they call functions.
func divides(f *phases.Phase) bool {
	return slices.ContainsFunc(f.Inner, func(in *phases.Phase) bool { return in.Function != "" })
}

func inner(r row) (list []row) {
	for _, f := range r.Inner {
		list = append(list, row{f, r.depth + 1})
	}
	return list
}

// columns are how often a phase began, its time, the peaks of DRAM and L1, and what it left.
var columns = page.Columns{6, 10, 12, 12, 12}

// WriteText writes a line for each phase.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	list := p.rows()
	if len(list) == 0 {
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("No phases %s: no call stack of a main thread is known.", page.Clean(p.Of)))
		return out.Flush()
	}
	layout.Write(out, 0, page.Dim, "Phases "+page.Clean(p.Of)+", by the outermost calls of its own code")
	var most [event.BankedRegions]uint64
	for _, r := range list {
		for region, peak := range r.Peaks {
			most[region] = max(most[region], peak.Bytes)
		}
	}
	fmt.Fprintln(out)
	layout.WriteHead(out, columns.Line("times", "time", "DRAM peak", "L1 peak", "left")+"  ", "phase")
	for _, r := range list {
		cell := func(region event.Region, i int) string {
			_, format := page.RegionTitle(region)
			text := page.Right(format(r.Peaks[region].Bytes), columns[i])
			if b := r.Peaks[region].Bytes; b > 0 && b == most[region] {
				return layout.Paint(page.Bold, text)
			}
			return text
		}
		left := "-"
		if r.Left.Bytes > 0 {
			left = page.Bytes(r.Left.Bytes)
		}
		line := columns[:2].Line(page.Grouped(r.Entered), page.Seconds(r.TimeNs)) + cell(event.DRAM, 2) + cell(event.L1, 3) + page.Right(left, columns[4]) + "  "
		title := r.String()
		if len(p.Snapshot.Processes) > 1 && r.depth == 0 {
			title = fmt.Sprintf("PID %d", r.PID) + layout.Separator() + title
		}
		layout.Beside(out, line+page.Blank(2*r.depth), page.Green, page.Clean(title))
	}
	fmt.Fprintln(out)
	layout.Sized().Write(out, 0, page.Dim, "Peaks include memory live before; L1 is per core. Left: not freed by the last run of the phase.")
	if p.Full {
		layout.Sized().Write(out, 0, page.Dim, "Too many phases to keep: further ones count in the call that contains them.")
	}
	return out.Flush()
}
