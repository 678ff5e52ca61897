package report

import "fmt"

// The maximum numbers of the parts of a report: an ordinary one fits a screen of 40 lines.
const (
	shownSites     = 5  // call sites of a peak,
	allSites       = 15 // and of all peaks
	shownLeaks     = 3  // call sites that leak
	shownGrowth    = 2  // processes whose host memory grew
	shownFailures  = 3
	failureLines   = 2 // lines about each
	shownOverlaps  = 1
	shownUnsafe    = 3
	shownProcesses = 8
	shownLate      = 4 // processes that were attached late
	shownLive      = 4 // processes with live memory,
	shownPlaces    = 3 // call sites of a process's live memory,
	allPlaces      = 8 // and of all processes'
	shownChips     = 4 // groups of chips that share memory in the same way; lines of text about chips
	shownWarnings  = 4
	shownNotes     = 6
)

// first returns the first texts of a list, and in place of the others their number.
func first(list []string, most int) []string {
	if hidden := len(list) - most; hidden > 0 {
		return append(list[:most], fmt.Sprintf("%d more, with --json", hidden))
	}
	return list
}
