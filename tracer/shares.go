package tracer

// This file bounds the memory of the call stacks of each user's processes, and the time of their events.

import (
	"cmp"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/internal/stack"
)

// madeLate is why events of a process were lost that kept others' events waiting: see package backlog.
const madeLate = "its user's events made ttmem late"

// turn says that the event loop works for a process from now on; 0: for none.
func (d *decoder) turn(pid int) {
	if !d.backlog.Late() {
		return
	}
	user := d.backlog.OfEnded(pid)
	if p := d.processes[pid]; p != nil {
		user = p.Sharer
	}
	d.backlog.Of(user)
}

// isShared reports whether there are processes of several users.
func (d *decoder) isShared() bool {
	users := make(map[int]bool)
	for _, p := range d.processes {
		if p.described {
			users[p.user] = true
		}
	}
	return len(users) > 1
}

const (
	// userStackBytes bounds the call stacks of a user's processes: 100,000 of 30 frames.
	userStackBytes = 64 << 20
	// userCodeBytes bounds the Python code objects of a user's processes: some 30,000.
	userCodeBytes = 16 << 20
	// stackRecords is the number of records of stacks and code between two checks. Events of
	// dropped stacks have arrived by then.
	stackRecords = 1 << 10
)

// boundStacks keeps stacks and code within these bounds. Each record of them calls it.
func (d *decoder) boundStacks() {
	if d.stackRecords++; d.stackRecords%stackRecords != 0 {
		return
	}
	d.trim(userStackBytes, (*stack.Process).StackBytes, func(p *process) int {
		d.spaces.Renew(p.PID)
		return p.stacks.Renew()
	})
	d.trim(userCodeBytes, (*stack.Process).CodeBytes, d.forgetCode)
}

// forgetCode drops Python code of a process, which the kernel side sends again if it runs.
func (d *decoder) forgetCode(p *process) (bytes int) {
	d.kernel.ChangeProcess(p.Program, bpf.ProcessForgetCode, 0)
	return p.stacks.ForgetCode()
}

// trim makes the processes of users that have more than most in sum forget some of it, the largest
// process first. forget returns how much a process forgets, now or the next time.
func (d *decoder) trim(most int, size func(*stack.Process) int, forget func(*process) int) {
	type holder struct {
		*process
		bytes int
	}
	holders, sums := make(map[int][]holder), make(map[int]int) // by user
	for _, p := range d.processes {
		if n := size(p.stacks); n > 0 {
			holders[p.user] = append(holders[p.user], holder{p, n})
			sums[p.user] += n
		}
	}
	for user, sum := range sums {
		if sum <= most {
			continue
		}
		// In a fixed order, so that the process that forgets the next time is the one to be asked again.
		slices.SortFunc(holders[user], func(a, b holder) int {
			return cmp.Or(cmp.Compare(b.bytes, a.bytes), cmp.Compare(a.PID, b.PID))
		})
		for _, h := range holders[user] {
			if sum -= forget(h.process); sum <= most {
				break
			}
		}
	}
}
