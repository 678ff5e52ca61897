package page

import (
	"fmt"
	"os/user"
	"strconv"

	"ttmem/aggregate/memory"
)

// UserNames are the names of users of this host that were looked up, or the ids of those that
// have no name.
type UserNames map[int]string

// Of looks up the user of a process; "" if the start of the process was not seen.
func (n UserNames) Of(p *memory.Process) string {
	if p.UID == 0 && p.Command == "" && p.Library == "" {
		return ""
	}
	name, known := n[p.UID]
	if !known {
		name = strconv.Itoa(p.UID)
		if u, err := user.LookupId(name); err == nil {
			name = Clean(u.Username)
		}
		n[p.UID] = name
	}
	return name
}

// Users are the users of processes, by PID. It is empty if all processes belong to one user.
type Users map[int]string

// UserColumns is the width of a column of users.
const UserColumns = 10

// UsersOf are the users of a snapshot's processes.
func UsersOf(s *memory.Snapshot) Users {
	users, names := make(Users), make(UserNames)
	for i := range s.Processes {
		p := &s.Processes[i]
		name := names.Of(p)
		if _, known := users[p.PID]; known && p.Exit != nil || name == "" {
			continue
		}
		users[p.PID] = name
	}
	if len(names) < 2 {
		clear(users)
	}
	return users
}

// PID writes "PID 42", or "PID 42 (anna)" if the processes belong to several users.
func (u Users) PID(pid int) string {
	if name := u[pid]; name != "" {
		return fmt.Sprintf("PID %d (%s)", pid, name)
	}
	return fmt.Sprintf("PID %d", pid)
}
