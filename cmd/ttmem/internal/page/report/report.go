// Package report writes the summary of a trace: failures, leaks, and the contents of each peak.
package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/advise"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// Options configure a report. The zero value selects all processes of a recording.
type Options struct {
	// Live is for running processes: the text says "now" instead of "at the end".
	Live bool
	// Own is for users who see only their own processes.
	Own bool
	// PID is the only process of the report; 0: all.
	PID int
	// Older names the previous part of the recording; "" if there is none.
	Older string
	// CutShort is true if the recording's end is missing.
	CutShort bool
	// State has the call sites of peaks and leaks.
	State *aggregate.State
	// Advice is what is held after its last use; nil if that was not searched.
	Advice *advise.Advice
	// Clock relates the snapshot's times to the wall clock. With UTC, times are printed by the
	// wall clock.
	Clock page.Clock
	UTC   bool
}

// A Page is the report of a snapshot.
type Page struct {
	*memory.Snapshot
	Options
}

// report is a report that is being written.
type report struct {
	page.Painter
	strings.Builder
	Options
	snap *memory.Snapshot
	// width is the number of columns; whole is true if longer names are not cut.
	width int
	whole bool
	// end is "at the end" or "now".
	end string
	// running is true if a process was running at the end of a recording; each figure then has
	// otherColumns more.
	running      bool
	otherColumns int
	// atLeast is true if a figure is only a lower bound.
	atLeast   bool
	users     page.Users
	names     page.UserNames
	leaked    []analyze.Verdict
	undecided []analyze.Verdict
	retained  []retained
	padded    []padded
	holders   analyze.Holders
	peaks     []memory.RegionPeak
	// buffers are those of each peak by owner, and programs the memory of the program that ran.
	buffers, programs [][]*alloc.Row
	// hostGrowth names the processes whose host memory grew.
	hostGrowth []string
}

// textColumns is the largest width of sentences.
const textColumns = 100

// WriteText writes failures and leaks, the peak or the present use of each region, then processes
// and their live memory.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	r := newReport(p.Snapshot, p.Options)
	r.Painter, r.width, r.whole = layout.Painter, layout.Columns(), layout.Width == 0
	r.write()
	_, err := io.WriteString(w, r.String())
	return err
}

func newReport(s *memory.Snapshot, o Options) *report {
	r := &report{Options: o, snap: s, users: page.UsersOf(s), names: make(page.UserNames), end: "at the end", peaks: o.State.RegionPeaks()}
	r.holders = analyze.PastHoldersOf(o.State)
	r.running = slices.ContainsFunc(s.Processes, func(p memory.Process) bool { return p.Exit == nil })
	switch {
	case o.Live:
		r.end, r.otherColumns = "now", len(", peak 1234.5 KiB")
	case r.running:
		r.otherColumns = len(", 1234.5 KiB at the end")
	}
	sites := analyze.Leaks(o.State, analyze.LeakOptions{}).Sites
	for _, v := range sites {
		switch {
		case o.PID != 0 && v.PID != o.PID:
		case v.Class == analyze.Leaked:
			r.leaked = append(r.leaked, v)
		case v.Class == analyze.Undecided:
			r.undecided = append(r.undecided, v)
		}
	}
	names := &alloc.Namer{}
	for i := range r.peaks {
		buffers, program := names.AtPeak(&r.peaks[i], &r.holders, "owner")
		r.buffers, r.programs = append(r.buffers, buffers), append(r.programs, program)
	}
	r.retained = retainedIn(sites, r.peaks, o.PID)
	r.padded = r.paddedIn()
	var pids []int
	if o.PID != 0 {
		pids = []int{o.PID}
	}
	r.hostGrowth = page.HostGrowth(s.Processes, pids, r.users)
	return r
}

func (r *report) write() {
	r.heading()
	r.writeSummary()
	r.warnLost()
	r.failures()
	r.overlaps()
	r.unsafe()
	r.afterFree()
	r.leaks()
	r.retainedByRuntime()
	r.tilePadding()
	r.writeLateFrees()
	r.regions()
	r.processes()
	r.live()
	r.notes()
}

// line writes one line, without blanks at its end.
func (r *report) line(parts ...string) {
	r.WriteString(strings.TrimRight(strings.Join(parts, ""), " "))
	r.WriteByte('\n')
}

// sentence writes a text in as many lines as it takes.
func (r *report) sentence(style page.Style, text string) {
	for _, line := range page.Wrap(text, r.width) {
		r.line(r.Paint(style, line))
	}
}

// cut cuts text to the remaining columns, unless names are not to be cut.
func (r *report) cut(s string, columns int) string {
	if r.whole {
		return s
	}
	return r.Cut(s, columns)
}

func (r *report) heading() {
	title, about := "Device memory", ""
	if r.PID > 0 {
		title += fmt.Sprintf(" of PID %d", r.PID)
	}
	first := page.FirstNs(r.snap, r.Live)
	if first > 0 {
		about = " over " + page.Seconds(r.snap.TimeNs-min(first, r.snap.TimeNs))
	}
	if r.UTC && first > 0 {
		about += ", from " + r.Clock.UTC(first) + " to " + r.Clock.UTC(r.snap.TimeNs) + " UTC"
	}
	if r.Live {
		title += " now"
		about = strings.Replace(about, " over ", ", traced for ", 1)
	}
	for i, line := range page.Wrap(title+about, r.width) {
		if i == 0 {
			line = r.Paint(page.Bold, title) + r.Paint(page.Dim, strings.TrimPrefix(line, title))
		}
		r.line(line)
	}
	if r.Own && r.PID == 0 {
		r.line(r.Paint(page.Dim, "Chips include the memory of all users; only your own processes are listed."))
	}
}

// warnLost warns if figures may be wrong.
func (r *report) warnLost() {
	for _, text := range first(r.doubts(), shownWarnings) {
		for i, line := range page.Wrap(r.cut(text, 3*(r.width-3)), r.width-3) {
			mark := r.Pick("⚠  ", "!! ")
			if i > 0 {
				mark = "   "
			}
			r.line(r.Paint(page.BoldRed, mark+line))
		}
	}
}

func (r *report) doubts() []string {
	return page.Doubts(*r.losses(), "totals may be too low")
}

func (r *report) losses() *memory.AllLosses {
	losses := r.snap.Losses(false, nil)
	return &losses
}
