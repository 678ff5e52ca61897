package page

import (
	"fmt"
	"os/user"
	"strconv"
	"sync"

	"ttmem/aggregate/memory"
)

// users are the names of users that were looked up.
var users sync.Map

// userName is the name of a user of this host, or the id if it has none.
func userName(uid int) string {
	if name, ok := users.Load(uid); ok {
		return name.(string)
	}
	name := strconv.Itoa(uid)
	if u, err := user.LookupId(name); err == nil {
		name = Clean(u.Username)
	}
	users.Store(uid, name)
	return name
}

// UserOf is the user of a process; "" if the start of the process was not seen.
func UserOf(p *memory.Process) string {
	if p.UID == 0 && p.Command == "" && p.Library == "" {
		return ""
	}
	return userName(p.UID)
}

// Users are the users of processes, by PID. It is empty if all processes belong to one user.
type Users map[int]string

// UserColumns is the width of a column of users.
const UserColumns = 10

// UsersOf are the users of a snapshot's processes.
func UsersOf(s *memory.Snapshot) Users {
	users, names := make(Users), make(map[string]bool)
	for i := range s.Processes {
		p := &s.Processes[i]
		name := UserOf(p)
		if _, known := users[p.PID]; known && p.Exit != nil || name == "" {
			continue
		}
		users[p.PID], names[name] = name, true
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
