package stack

import (
	"errors"
	"fmt"
)

// errNoSlot means that the kernel's list has no room for another process.
var errNoSlot = errors.New("as many processes are recorded already as there may be")

// slots are those of the kernel's list of address spaces. A user other than root has a quarter.
type slots struct {
	used    []bool // slot 0 is never used
	last    int
	users   map[int]int  // how many a user has
	refused map[int]bool // users with a process that got no slot
}

func newSlots(n int) slots {
	return slots{used: make([]bool, n), users: make(map[int]int), refused: make(map[int]bool)}
}

// take returns a slot for a process of a user.
func (s *slots) take(user int) (slot uint32, err error) {
	most := len(s.used) - 1
	if user != 0 {
		most /= 4
	}
	// slots are used in turn, because one that was just released may be in use for a moment
	for range s.used {
		s.last = s.last%(len(s.used)-1) + 1
		if !s.used[s.last] && s.users[user] < most {
			s.used[s.last] = true
			s.users[user]++
			return uint32(s.last), nil
		}
	}
	return 0, fmt.Errorf("%w: %d of user %d", errNoSlot, s.users[user], user)
}

// refuses notes that a process of a user got no slot, and reports whether it is the first one
// since another process of that user got a slot.
func (s *slots) refuses(user int) bool {
	first := !s.refused[user]
	s.refused[user] = true
	return first
}

// giveBack frees the slot of a process.
func (s *slots) giveBack(p *space) {
	s.used[p.slot] = false
	if s.users[p.user]--; s.users[p.user] == 0 {
		delete(s.users, p.user)
	}
	delete(s.refused, p.user)
}
