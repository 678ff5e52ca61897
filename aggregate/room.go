package aggregate

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
	"ttmem/tracer/event"
	"ttmem/tracer/quota"
)

// A State keeps much for each event, and a program can make up any number of them. What grows is
// bounded for each user: see docs/security.md. The figures of other users stay right, and what is left
// out is among the losses of its process.

const (
	// maxChips is the number of chips that all processes may name, and maxUserChips that of chips which
	// only those of one user named.
	maxChips, maxUserChips = 1024, 256
	// maxLinks is the number of sets of chips of a user's processes, with the chips of each, and of
	// their allocators; maxAllLinks that of all users.
	maxLinks, maxAllLinks = 1 << 13, 1 << 16
	// maxSites is the number of call sites of a user, and maxAllSites that of all users.
	maxSites, maxAllSites = 1 << 16, 1 << 18
	// maxAllocators is the number of open allocators of a process, as the tracer has it.
	maxAllocators = 256
	// maxParts is the number of circular buffers of a program, and maxCoreSteps that of the cores of
	// their different sets of cores: both cost time at each run.
	maxParts, maxCoreSteps = 1 << 10, 1 << 14
	// maxBufferCores is the number of cores of a buffer on single cores, on all its chips.
	maxBufferCores = 1 << 13
	// maxCovers is the number of buffers on each chip whose overlaps are followed, for the chip and for the
	// process, and maxAllCovers that of all users.
	maxCovers, maxAllCovers = 1 << 18, 1 << 20
)

// rooms count what users have.
type rooms struct{ allocations, chips, links, sites, covers *quota.Quota }

func newRooms() rooms {
	return rooms{
		allocations: quota.New(quota.Allocations, quota.AllAllocations), chips: quota.New(maxUserChips, maxChips),
		links: quota.New(maxLinks, maxAllLinks), sites: quota.New(maxSites, maxAllSites), covers: quota.New(maxCovers, maxAllCovers),
	}
}

// user is to whom a process counts: its user, or itself if it is of root, whose containers run programs
// of many users.
func (n *processName) user() int {
	if sharer := n.sharer(); sharer != 0 {
		return sharer
	}
	return -n.pid
}

// sharer is the user to whom it counts where users have shares: in a user namespace the owner of the outermost one, because a
// user may have thousands of ids there.
func (n *processName) sharer() int {
	if n.outside != 0 {
		return n.outside
	}
	return n.about.UID
}

// An exitedProcess has its processName's sharer.
type exitedProcess struct {
	memory.Process
	sharer int
}

// kept is what a process has of the rooms.
type kept struct {
	allocations, links               int
	ofAllocations, ofLinks, ofCovers quota.Share
}

// hold adds n allocations of a process, and reports whether they fit.
func (p *process) hold(n int) bool {
	return p.keep(&p.kept.ofAllocations, p.state.rooms.allocations, &p.kept.allocations, n)
}

// link adds n links of a process, and reports whether they fit.
func (p *process) link(n int) bool {
	return p.keep(&p.kept.ofLinks, p.state.rooms.links, &p.kept.links, n)
}

func (p *process) keep(share *quota.Share, room *quota.Quota, has *int, n int) bool {
	if !share.Hold(room, p.name.user(), *has+n) {
		p.beyond()
		return false
	}
	*has += n
	return true
}

// release gives back what a process has, when it ends.
func (p *process) release() {
	s := p.state
	p.kept.ofAllocations.Release(s.rooms.allocations)
	p.kept.ofLinks.Release(s.rooms.links)
	p.kept.ofCovers.Release(s.rooms.covers)
	delete(s.triedSites, p.name.user())
	delete(s.examined, p.name.user())
}

// beyond counts what is left out of a process.
func (p *process) beyond() { p.state.lose(p, quota.Beyond, 1) }

// maySpend counts what an event costs, in steps, and reports whether its user has not caused too many lately. If not, a loss
// counts.
func (p *process) maySpend(steps int, nowNs uint64) bool {
	may := p.state.rooms.allocations.Spend(p.name.user(), steps, nowNs)
	if !may {
		p.beyond()
	}
	return may
}

// cheapChips is how many chips an event may be about without being counted.
const cheapChips = 32

func (p *process) mayApply(e *event.Event) bool {
	return len(e.Devices) <= cheapChips || p.maySpend(len(e.Devices), e.TimeNs)
}

const (
	// maxExited and maxExitedSize are the number of ended processes of a user that a State keeps, and
	// that of the chips of all these; maxAllExited and maxAllExitedSize those of all users.
	maxExited, maxExitedSize       = 64, 512
	maxAllExited, maxAllExitedSize = 1024, 8192
)

// exits are the newest processes that ended, oldest first. count includes those that were dropped.
type exits struct {
	list  []exitedProcess
	count uint64
}

// add keeps an ended process, and drops the oldest ones of its user, or of the user with the most, if
// there are too many.
func (x *exits) add(view memory.Process, sharer int) {
	x.count++
	x.list = append(x.list, exitedProcess{view, sharer})
	for {
		counts, sizes := make(map[int]int), make(map[int]int)
		size, most := 0, sharer
		for i := range x.list {
			of, n := x.list[i].sharer, 1+len(x.list[i].Devices)
			counts[of], sizes[of], size = counts[of]+1, sizes[of]+n, size+n
			if sizes[of] > sizes[most] {
				most = of
			}
		}
		drop := sharer
		switch {
		case counts[drop] > 1 && (counts[drop] > maxExited || sizes[drop] > maxExitedSize):
		case len(x.list) > maxAllExited || size > maxAllExitedSize:
			drop = most
		default:
			return
		}
		oldest := slices.IndexFunc(x.list, func(p exitedProcess) bool { return p.sharer == drop })
		x.list = slices.Delete(x.list, oldest, oldest+1)
	}
}

// code writes or reads the ended processes.
func (x *exits) code(c *codec.Codec) {
	codec.ListUpTo(c, &x.list, maxAllExited, func(p *exitedProcess) {
		c.Value(&p.Process)
		p.sharer = cmp.Or(p.sharer, p.UID)
	})
}
