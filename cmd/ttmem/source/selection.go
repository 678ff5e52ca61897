package source

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A Selection is the processes and chips that flags select, and which of all were seen.
type Selection struct {
	pids, chips         []int
	seenPIDs, seenChips map[int]bool
}

// NewSelection selects processes and chips.
func NewSelection(pids, chips []int) Selection {
	return Selection{pids: pids, chips: chips, seenPIDs: make(map[int]bool), seenChips: make(map[int]bool)}
}

// See takes the process and the chips of an event, or all that the state has that was
// restored from a checkpoint. The event was applied to the state.
func (l *Selection) See(e *event.Event, s *aggregate.State) {
	if e.Kind == event.Checkpoint && len(l.pids)+len(l.chips) > 0 {
		snap := s.Snapshot()
		for _, pid := range pidsOf(snap) {
			l.seenPIDs[pid] = true
		}
		for _, id := range chipsOf(snap) {
			l.seenChips[id] = true
		}
	}
	if len(l.pids) > 0 && e.PID != 0 {
		l.seenPIDs[e.PID] = true
	}
	if len(l.chips) > 0 {
		for _, id := range e.Devices {
			l.seenChips[id] = true
		}
	}
}

// Gone reports whether a selected process was not seen, and does not run. It is to be called
// when what was allocated before is known.
func (l *Selection) Gone() bool {
	return slices.ContainsFunc(l.pids, func(pid int) bool {
		return !l.seenPIDs[pid] && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	})
}

// Check is an error that names what was not seen in a place, such as "in model.ttmem".
func (l *Selection) Check(place string) error {
	return checkSelection(l.pids, l.chips, page.Keys(l.seenPIDs), page.Keys(l.seenChips), place)
}

// CheckPIDs is an error if a process is not in the snapshot.
func CheckPIDs(pids []int, snap *aggregate.Snapshot, place string) error {
	return checkSelection(pids, nil, pidsOf(snap), nil, place)
}

// CheckChips is an error if a chip is not in the snapshot.
func CheckChips(chips []int, snap *aggregate.Snapshot, place string) error {
	return checkSelection(nil, chips, nil, chipsOf(snap), place)
}

// checkSelection makes sure that the selected processes and chips are among those that were
// seen.
func checkSelection(pids, chips, seenPIDs, seenChips []int, place string) error {
	for _, id := range chips {
		switch {
		case len(seenChips) == 0:
			return fmt.Errorf("--chip %d: no chip is used %s", id, place)
		case !slices.Contains(seenChips, id):
			return fmt.Errorf("--chip %d: no such chip %s; available: %s", id, place, page.Chips(seenChips))
		}
	}
	for _, pid := range pids {
		switch {
		case slices.Contains(seenPIDs, pid):
		case len(seenPIDs) > 0:
			return fmt.Errorf("-p %d: no such process %s; available: PID %s", pid, place, page.Some(texts(seenPIDs), "process"))
		default:
			return fmt.Errorf("-p %d: no such process %s; `ttmem report` lists the processes", pid, place)
		}
	}
	return nil
}

// Missing is an error if a selected process is not in the file. It is to be called if nothing
// was found: it reads the end of the file once more.
func (o *Options) Missing() error {
	if o.File == "" || len(o.PIDs) == 0 || ReadOnce(o.File) != nil {
		return nil
	}
	s, err := AtEnd(o.File)
	if err != nil {
		return nil // which was reported before
	}
	return CheckPIDs(o.PIDs, s.Snapshot(), In(o.File))
}

// pidsOf are the ids of all processes, also of those that ended, in order.
func pidsOf(s *aggregate.Snapshot) (pids []int) {
	for i := range s.Processes {
		pids = append(pids, s.Processes[i].PID)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

func chipsOf(s *aggregate.Snapshot) (chips []int) {
	for i := range s.Devices {
		chips = append(chips, s.Devices[i].ID)
	}
	return chips
}

func texts(numbers []int) (list []string) {
	for _, n := range numbers {
		list = append(list, fmt.Sprint(n))
	}
	return list
}
