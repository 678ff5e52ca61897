package page

import (
	"cmp"
	"fmt"
	"os/user"
	"strconv"

	"ttmem/aggregate/memory"
)

// UserNames are the users of this host that were looked up; "" for users without a name.
type UserNames map[int]string

// Name looks up the name of a process's user; "" if the user has no name, or if the start of the
// process, which has the user, was not seen.
func (n UserNames) Name(p *memory.Process) string {
	if !userKnown(p) {
		return ""
	}
	name, known := n[p.UID]
	if !known {
		if u, err := user.LookupId(strconv.Itoa(p.UID)); err == nil {
			name = Clean(u.Username)
		}
		n[p.UID] = name
	}
	return name
}

// Of is the name of a process's user, or the id if the user has no name; "" if it is not known.
func (n UserNames) Of(p *memory.Process) string {
	if !userKnown(p) {
		return ""
	}
	return cmp.Or(n.Name(p), strconv.Itoa(p.UID))
}

func userKnown(p *memory.Process) bool { return p.UID != 0 || p.Command != "" || p.Library != "" }

// Users are the users of processes, by PID. It is empty if all processes belong to one user.
type Users map[int]string

// UserColumns is the width of a column of users.
const UserColumns = 10

// UsersOf are the users of a snapshot's processes.
func UsersOf(s *memory.Snapshot) Users {
	users, shown, names := make(Users), make(map[int]bool), make(UserNames)
	for i := range s.Processes {
		p := &s.Processes[i]
		name := names.Of(p)
		if _, known := users[p.PID]; known && p.Exit != nil || name == "" {
			continue
		}
		users[p.PID], shown[p.UID] = name, true
	}
	if len(shown) < 2 {
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
