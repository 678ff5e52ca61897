package page

import (
	"bufio"
	"fmt"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
)

// OtherUsers stands for the call sites of users whose processes are not shown.
const OtherUsers = "other users"

// ownOnlyNote says that users see only their own processes.
const ownOnlyNote = "only your own processes are shown: "

// WriteOthers writes the description of the memory of other users; "" writes nothing.
func (l Layout) WriteOthers(out *bufio.Writer, others string) {
	if others != "" {
		l.Write(out, 0, Dim, strings.ToUpper(ownOnlyNote[:1])+ownOnlyNote[1:]+others)
	}
}

// WithOthers adds that description to the notes of a JSON document.
func WithOthers(notes []string, others string) []string {
	if others == "" {
		return notes
	}
	return append([]string{ownOnlyNote + others}, notes...)
}

// shownOthers is the maximum number of groups of chips that OthersHold lists.
const shownOthers = 4

// OthersHold says in a line how much of each chip other users have allocated. The snapshot
// is the service's, with the totals of all users.
func OthersHold(s *memory.Snapshot) string {
	var texts []string
	chips := make(map[string][]int)
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.OtherUsers == nil {
			continue
		}
		dram := d.Regions.DRAM.AllocatedBytes
		for j := range s.Processes {
			if p := &s.Processes[j]; p.Exit == nil {
				if at := slices.IndexFunc(p.Devices, func(own memory.Device) bool { return own.ID == d.ID }); at >= 0 {
					dram -= min(dram, p.Devices[at].Regions.DRAM.AllocatedBytes)
				}
			}
		}
		text := Bytes(dram)
		if capacity := d.Regions.DRAM.CapacityBytes; capacity > 0 {
			text += " of " + Bytes(capacity)
		}
		text += " of DRAM"
		if rest := d.OtherUsers.AllocatedBytes; rest > dram {
			text += " and " + Bytes(rest-dram) + " elsewhere"
		}
		if chips[text] == nil {
			texts = append(texts, text)
		}
		chips[text] = append(chips[text], d.ID)
	}
	if len(texts) == 0 {
		return "other users use no chip"
	}
	var list []string
	for _, text := range texts[:min(len(texts), shownOthers)] {
		ids := chips[text]
		on := Chips(ids)
		if len(ids) > 1 {
			on = "each of " + on
		}
		list = append(list, text+" on "+on)
	}
	if hidden := len(texts) - len(list); hidden > 0 {
		list = append(list, fmt.Sprintf("more on %d others", hidden))
	}
	return "other users hold " + strings.Join(list, ", ")
}
