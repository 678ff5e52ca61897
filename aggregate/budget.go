package aggregate

import "ttmem/tracer/quota"

// A budget bounds what events cost that examine many buffers: a failed allocation sorts all of its process, and an
// overlap is searched among those of all processes. A user may examine as many buffers as it may have, and
// at most half of what others leave of as many as all may have. Events give that back, and no more than time
// does: a recording may claim any times, and a program can cause any number of events.
type budget struct {
	spent map[int]uint64 // buffers by user
	all   uint64         // the sum of spent
	// event and ns are when some was last given back.
	event, ns uint64
}

const (
	// budgetPerEvent is how many buffers each event gives back, in equal parts to all users who spent some: they
	// take a few microseconds, as the event itself.
	budgetPerEvent = 32
	// budgetNs is the time that gives back a buffer to each user.
	budgetNs = 1000
)

// take reports whether a user may examine so many buffers, and counts them.
func (b *budget) take(s *State, user, buffers int) bool {
	b.giveBack(s.events, s.now)
	spent, n := b.spent[user], uint64(buffers)
	if others := b.all - spent; spent+n > min(quota.Allocations, (quota.AllAllocations-others)/2) {
		return false
	}
	if b.spent == nil {
		b.spent = make(map[int]uint64)
	}
	b.spent[user] += n
	b.all += n
	return true
}

func (b *budget) giveBack(event, now uint64) {
	each := min((now-min(now, b.ns))/budgetNs, (event-b.event)*budgetPerEvent/uint64(max(1, len(b.spent))))
	if each == 0 {
		return
	}
	b.event, b.ns, b.all = event, now, 0
	for user, spent := range b.spent {
		if spent <= each {
			delete(b.spent, user)
			continue
		}
		b.spent[user] = spent - each
		b.all += spent - each
	}
}
