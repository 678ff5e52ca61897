package stack

// This file shares the slots of the kernel's list of address spaces among users.

import (
	"errors"
	"fmt"

	"ttmem/tracer/kernel"
)

// errNoSlot means that the kernel's list has no room for another process.
var errNoSlot = errors.New("as many processes are recorded already as there may be")

// space returns the record of a process, with a slot in the kernel's list. A user other than root has a
// quarter of the slots.
func (s *Spaces) space(program kernel.Program, user int) (*space, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.byPID[program.PID]; p != nil {
		return p, nil
	}
	most := len(s.slots) - 1
	if user != 0 {
		most /= 4
	}
	// slots are used in turn, because one that was just released may be in use for a moment
	for range s.slots {
		s.nextSlot = s.nextSlot%(len(s.slots)-1) + 1
		if !s.slots[s.nextSlot] && s.users[user] < most {
			s.slots[s.nextSlot] = true
			s.users[user]++
			p := &space{program: program, slot: uint32(s.nextSlot), user: user, views: make(map[uint32]*spaceView)}
			s.byPID[program.PID] = p
			return p, nil
		}
	}
	return nil, fmt.Errorf("%w: %d of user %d", errNoSlot, s.users[user], user)
}

// refuses notes that a process of a user got no slot, and reports whether it is the first one
// since another process of that user got a slot.
func (s *Spaces) refuses(user int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := !s.refused[user]
	s.refused[user] = true
	return first
}

// giveBack frees the slot of a process; s.mu is held.
func (s *Spaces) giveBack(p *space) {
	s.slots[p.slot] = false
	if s.users[p.user]--; s.users[p.user] == 0 {
		delete(s.users, p.user)
	}
	delete(s.refused, p.user)
}
