package analyze

import (
	"slices"

	"ttmem/aggregate/memory"
)

// maxChips is how many chips each user has in the answers of a service: more than a host has, and few
// enough that a program that claims thousands does not make every answer, and every series, large.
const maxChips = 256

// noUser has the chips that no running process uses.
const noUser = -1

// Bound reduces a snapshot to the chips of which at least one user has no more than maxChips, those
// with the lowest ids first, and counts the others.
func Bound(s *memory.Snapshot) *memory.Snapshot {
	if len(s.Devices) <= maxChips {
		return s
	}
	users := make(map[int]int) // by PID
	for i := range s.Processes {
		if p := &s.Processes[i]; p.Exit == nil {
			users[p.PID] = p.UID
		}
	}
	chips, kept := make(map[int]int), make(map[int]bool) // chips by user
	for i := range s.Devices {
		of := map[int]bool{}
		for _, p := range s.Devices[i].Processes {
			of[users[p.PID]] = true
		}
		if len(of) == 0 {
			of[noUser] = true
		}
		for uid := range of {
			if chips[uid] < maxChips {
				kept[s.Devices[i].ID] = true
			}
			chips[uid]++
		}
	}
	isLeftOut := func(d memory.Device) bool { return !kept[d.ID] }
	some := *s
	some.Devices = slices.DeleteFunc(slices.Clone(s.Devices), isLeftOut)
	some.DevicesLeftOut = len(s.Devices) - len(some.Devices)
	some.Processes = slices.Clone(s.Processes)
	for i := range some.Processes {
		p := &some.Processes[i]
		p.Devices = slices.DeleteFunc(slices.Clone(p.Devices), isLeftOut)
	}
	return &some
}
