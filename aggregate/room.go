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
	list  []*exitedProcess
	count uint64
	// users is what each user has of the list, and all their sum. Adding the first process counts them.
	users map[int]exitedRoom
	all   exitedRoom
}

// An exitedRoom is a number of ended processes, and that of their chips and themselves.
type exitedRoom struct{ processes, size int }

// add keeps an ended process, and drops the oldest ones of its user, or of the user with the most, if
// there are too many.
func (x *exits) add(view memory.Process, sharer int) {
	if x.users == nil {
		x.users = make(map[int]exitedRoom)
		for _, p := range x.list {
			x.tally(p, 1)
		}
	}
	x.count++
	x.list = append(x.list, &exitedProcess{view, sharer})
	x.tally(x.list[len(x.list)-1], 1)
	for {
		drop := sharer
		switch own := x.users[sharer]; {
		case own.processes > 1 && (own.processes > maxExited || own.size > maxExitedSize):
		case x.all.processes > maxAllExited || x.all.size > maxAllExitedSize:
			for user, has := range x.users {
				most := x.users[drop].size
				if has.size > most || has.size == most && drop != sharer && user < drop {
					drop = user
				}
			}
		default:
			return
		}
		oldest := slices.IndexFunc(x.list, func(p *exitedProcess) bool { return p.sharer == drop })
		x.tally(x.list[oldest], -1)
		x.list = slices.Delete(x.list, oldest, oldest+1)
	}
}

// tally adds a process to what users have, or takes it away with n = -1.
func (x *exits) tally(p *exitedProcess, n int) {
	size := n * (1 + len(p.Devices))
	x.all = exitedRoom{x.all.processes + n, x.all.size + size}
	has := x.users[p.sharer]
	if has = (exitedRoom{has.processes + n, has.size + size}); has.processes > 0 {
		x.users[p.sharer] = has
	} else {
		delete(x.users, p.sharer)
	}
}

// code writes or reads the ended processes.
func (x *exits) code(c *codec.Codec) {
	codec.ListUpTo(c, &x.list, maxAllExited, func(pp **exitedProcess) {
		p := codec.Made(c, pp)
		c.Value(&p.Process)
		p.sharer = cmp.Or(p.sharer, p.UID)
	})
}
