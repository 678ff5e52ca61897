package source

import (
	"fmt"
	"slices"
	"strconv"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
)

// CheckPIDs returns an error if a process is not in the snapshot of a place, such as "in
// model.ttmem".
func CheckPIDs(pids []int, snap *memory.Snapshot, place string) error {
	seen := pidsOf(snap)
	for _, pid := range pids {
		switch {
		case slices.Contains(seen, pid):
		case len(seen) > 0:
			return fmt.Errorf("-p %d: %s; available: PID %s", pid, noProcess(place), page.Some(page.Each(seen, strconv.Itoa), "process"))
		case IsOwn(place):
			return fmt.Errorf("-p %d: %s; ttmem serve shows each user their own processes", pid, noProcess(place))
		default:
			return fmt.Errorf("-p %d: no such process %s; `ttmem report` lists the processes", pid, place)
		}
	}
	return nil
}

// IsOwn reports whether a place has only the processes of the user.
func IsOwn(place string) bool { return place == In(ownOnThisHost) }

// noProcess says that a process is not in a place.
func noProcess(place string) string {
	if IsOwn(place) {
		return "no such process of yours " + In(thisHost)
	}
	return "no such process " + place
}

// CheckChips returns an error if a chip is not in the snapshot of a place.
func CheckChips(chips []int, snap *memory.Snapshot, place string) error {
	seen := snap.DeviceIDs()
	for _, id := range chips {
		switch {
		case len(seen) == 0:
			return fmt.Errorf("--chip %d: no chip is used %s", id, place)
		case !slices.Contains(seen, id):
			return fmt.Errorf("--chip %d: no such chip %s; available: %s", id, place, page.Chips(seen))
		}
	}
	return nil
}

// Missing returns an error if a selected process is not in the file. Call it if nothing was
// found: it reads the end of the file once more.
func (o *Options) Missing() error {
	if o.File == "" {
		return nil
	}
	return missing(o.PIDs, o.File)
}

func missing(pids []int, path string) error {
	if len(pids) == 0 || ReadOnce(path) != nil {
		return nil
	}
	end, _, err := (&Recording{Path: path}).End()
	if err != nil {
		return nil // reported before
	}
	return CheckPIDs(pids, end.Totals(), In(path))
}

// pidsOf returns the ids of all processes in order, including ended ones.
func pidsOf(s *memory.Snapshot) (pids []int) {
	for i := range s.Processes {
		pids = append(pids, s.Processes[i].PID)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
