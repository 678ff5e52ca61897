package main

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// asked are the processes and chips that the user names, and what was met of all.
type asked struct {
	pids, devices       []int
	metPIDs, metDevices map[int]bool
}

func newAsked(pids, devices []int) asked {
	return asked{pids: pids, devices: devices, metPIDs: make(map[int]bool), metDevices: make(map[int]bool)}
}

// meet notes the process and the chips of an event, or all that the state restored from a
// checkpoint has. The event was applied to the state.
func (a *asked) meet(e *event.Event, s *aggregate.State) {
	if e.Kind == event.Checkpoint && len(a.pids)+len(a.devices) > 0 {
		snap := s.Snapshot()
		for _, pid := range pidsOf(snap) {
			a.metPIDs[pid] = true
		}
		for i := range snap.Devices {
			a.metDevices[snap.Devices[i].ID] = true
		}
	}
	if len(a.pids) > 0 && e.PID != 0 {
		a.metPIDs[e.PID] = true
	}
	if len(a.devices) > 0 {
		for _, id := range e.Devices {
			a.metDevices[id] = true
		}
	}
}

// gone reports whether a process that is asked for neither was met nor is there: it is to
// be called when what there was before is known.
func (a *asked) gone() bool {
	return slices.ContainsFunc(a.pids, func(pid int) bool {
		return !a.metPIDs[pid] && errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	})
}

// check is an error that names what was not met: where it is not is said as "in
// model.ttmem".
func (a *asked) check(where string) error {
	return checkAsked(a.pids, a.devices, page.Keys(a.metPIDs), page.Keys(a.metDevices), where)
}

// checkAsked makes sure that the processes and chips that are asked for by number are
// among those that there were, as far as these are known.
func checkAsked(pids, devices, metPIDs, metDevices []int, where string) error {
	for _, id := range devices {
		switch {
		case len(metDevices) == 0:
			return fmt.Errorf("--chip %d: no chip is used %s", id, where)
		case !slices.Contains(metDevices, id):
			return fmt.Errorf("--chip %d: no such chip %s; available: %s", id, where, page.Chips(metDevices))
		}
	}
	for _, pid := range pids {
		switch {
		case slices.Contains(metPIDs, pid):
		case len(metPIDs) > 0:
			return fmt.Errorf("-p %d: no such process %s; available: PID %s", pid, where, page.Some(texts(metPIDs), "process"))
		default:
			return fmt.Errorf("-p %d: no such process %s; `ttmem report` lists the processes", pid, where)
		}
	}
	return nil
}

// missing is an error where a process that is asked for is not in the file. It is to be
// called where nothing was found: it reads the file's end once more.
func (o *sourceOptions) missing() error {
	if o.file == "" || len(o.pids) == 0 || readOnce(o.file) != nil {
		return nil
	}
	p, err := presentOfFile(o.file)
	if err != nil {
		return nil // which was told of before
	}
	return checkAsked(o.pids, nil, pidsOf(p.Snapshot()), nil, placeIn(o.file))
}

// pidsOf are the ids of all processes, also of those that ended, in order.
func pidsOf(s *aggregate.Snapshot) (pids []int) {
	for i := range s.Processes {
		pids = append(pids, s.Processes[i].PID)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}

func texts(numbers []int) (list []string) {
	for _, n := range numbers {
		list = append(list, fmt.Sprint(n))
	}
	return list
}
