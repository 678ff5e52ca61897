package page

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
)

// shownLosses is the maximum number of processes that Doubts names.
const shownLosses = 5

// Doubts lists the figures that may be wrong because events were lost: those of the processes that
// lost events and, with the text doubt, all figures if the processes are not known.
func Doubts(all memory.AllLosses, doubt string) (list []string) {
	if memory.Sum(all.Lost) > 0 {
		list = append(list, doubt+": "+lostEvents(all.Lost))
	}
	for i := range all.Processes[:min(len(all.Processes), shownLosses)] {
		p := &all.Processes[i]
		figures := fmt.Sprintf("figures of process %d", p.PID)
		if p.Comm != "" {
			figures += " (" + Clean(p.Comm) + ")"
		}
		if memory.Sum(p.Lost) > 0 {
			list = append(list, figures+" may be wrong: "+lostEvents(p.Lost))
		}
		if memory.Sum(p.Corrected) > 0 {
			first := Seconds(p.RightSinceNs - min(p.SinceNs, p.RightSinceNs))
			list = append(list, figures+" in its first "+first+" may be wrong: "+lostEvents(p.Corrected)+"; its memory was read again then")
		}
	}
	if n := len(all.Processes) - shownLosses; n > 0 {
		list = append(list, fmt.Sprintf("figures of %d more %s may be wrong", n, Plural(uint64(n), "process")))
	}
	for i := range all.OwnerSearches[:min(len(all.OwnerSearches), shownLosses)] {
		s := &all.OwnerSearches[i]
		list = append(list, fmt.Sprintf("no owner found for %s of %s of process %d: the search was incomplete (%s)",
			Grouped(s.Unowned), Count(s.Buffers, "buffer"), s.PID, Clean(s.Incomplete)))
	}
	return list
}

// lostEvents returns the number of lost events with the causes, the most frequent one first.
func lostEvents(lost map[string]uint64) string {
	var causes []string
	for _, cause := range slices.SortedFunc(maps.Keys(lost), func(a, b string) int {
		return cmp.Or(cmp.Compare(lost[b], lost[a]), cmp.Compare(a, b))
	}) {
		text := Clean(cause)
		if len(lost) > 1 {
			text = fmt.Sprintf("%d: %s", lost[cause], text)
		}
		causes = append(causes, text)
	}
	return fmt.Sprintf("%s lost (%s)", Count(memory.Sum(lost), "event"), strings.Join(causes, ", "))
}
