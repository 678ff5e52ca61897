package aggregate

import (
	"slices"

	"ttmem/aggregate/internal/peak"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A chip is one physical device, with its use by all processes.
type chip struct {
	id          int
	board, arch string
	// capacities are by region. They stay when the last allocator is closed, because
	// reports are mostly read afterwards.
	capacities memory.Capacities
	// open are the capacities of processes that have the chip open, with the number of processes.
	open     map[memory.Capacities]int
	used     peak.Use
	pools    peak.Pools
	failures [event.NumRegions]uint64
	// run is the latest run of a program; nil if there was none, or if the library refused it. ran is
	// called with each.
	run *run
	// changes is how often a buffer in L1 was about to change.
	changes uint64
	ran     *func(memory.ProgramRun)
	// users are the users whose processes have used the chip, in order: up to
	// maxChipUsers, and one more if there were more.
	users []int
	// partial is true if it has only the processes of some users, and its peaks are not
	// known.
	partial bool
	covers  covers
}

// maxChipUsers is how many users of a chip are kept.
const maxChipUsers = 16

// addUser notes that a process of the user uses the chip.
func (c *chip) addUser(uid int) {
	if i, found := slices.BinarySearch(c.users, uid); !found && len(c.users) <= maxChipUsers {
		c.users = slices.Insert(c.users, i, uid)
	}
}

// usedOnlyBy reports whether all users of the chip are selected.
func (c *chip) usedOnlyBy(selected func(uid int) bool) bool {
	return len(c.users) <= maxChipUsers && !c.partial &&
		!slices.ContainsFunc(c.users, func(uid int) bool { return !selected(uid) })
}

// chip returns the chip with that id, and creates it if needed; nil if the user of the process has named
// too many. A chip stays, because reports are mostly read after the end of a program.
func (s *State) chip(p *process, id int) *chip {
	c := s.chips[id]
	if c == nil {
		if s.restoring { // a checkpoint has all chips
			return nil
		}
		if len(s.chips) >= maxChips || !s.rooms.chips.Take(p.name.user(), 1) {
			p.beyond()
			return nil
		}
		c = newChip(id, s.first, s.ran)
		c.pools.Pause(s.pausedPeaks, s.now, s.applied)
		s.chips[id] = c
	}
	return c
}

// newChip returns a chip whose timelines begin at a time.
func newChip(id int, begin uint64, ran *func(memory.ProgramRun)) *chip {
	c := &chip{id: id, ran: ran}
	c.pools = peak.NewPools(id, &c.capacities, begin)
	return c
}

// Capacity returns the capacity of a region of a chip, also after the chip was closed; zero if it is
// not known.
func (s *State) Capacity(device int, region event.Region) event.Capacity {
	if c := s.chips[device]; c != nil && int(region) < event.BankedRegions {
		return c.capacities[region]
	}
	return event.Capacity{}
}
