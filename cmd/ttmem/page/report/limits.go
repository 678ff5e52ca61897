package report

import (
	"fmt"
	"strings"
)

// pageLines is the maximum number of lines of a report: a screen of 40 lines, minus the lines
// that commands write below it.
const pageLines = 36

// limits are the maximum numbers of the parts of a report.
type limits struct {
	sites     int // call sites of a peak
	leaks     int // call sites that leak
	failures  int // and lines about each
	processes int
	live      int // processes with live memory
	places    int // call sites of a process's live memory
	chips     int // groups of chips that share memory in the same way; lines of text about chips
	warnings  int
	notes     int
}

// shownSites is how many call sites of a peak are shown, if there is room.
const shownSites = 5

func widest() limits {
	return limits{sites: shownSites, leaks: 3, failures: 3, processes: 8, live: 8, places: 3, chips: 16, warnings: 7, notes: 20}
}

// shrink reduces one of the limits; false if nothing more can be left out.
func (l *limits) shrink() bool {
	for _, next := range []struct {
		shown *int
		least int
	}{
		{&l.sites, 1}, {&l.places, 1}, {&l.notes, 3}, {&l.processes, 4}, {&l.live, 2}, {&l.chips, 3}, {&l.warnings, 3},
		{&l.places, 0}, {&l.live, 0}, {&l.notes, 1}, {&l.failures, 2}, {&l.leaks, 2}, {&l.processes, 2}, {&l.warnings, 1},
		{&l.chips, 1}, {&l.sites, 0}, {&l.failures, 1}, {&l.leaks, 1}, {&l.chips, 0}, {&l.processes, 1}, {&l.notes, 0},
	} {
		if *next.shown > next.least {
			*next.shown--
			return true
		}
	}
	return false
}

// fill writes as much as fits on a page.
func (r *report) fill() {
	for r.most = widest(); ; {
		r.Reset()
		r.write()
		if strings.Count(r.String(), "\n") <= pageLines || !r.most.shrink() {
			return
		}
	}
}

// first returns the first texts of a list, and in place of the others their number.
func first(list []string, most int) []string {
	if hidden := len(list) - most; hidden > 0 {
		return append(list[:most], fmt.Sprintf("%d more, with --json", hidden))
	}
	return list
}
