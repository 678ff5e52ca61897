package page

import (
	"cmp"
	"fmt"
	"os/user"
	"strconv"
	"sync"

	"ttmem/aggregate/memory"
)

// users are the names of users that were looked up.
var users sync.Map

// userName is the name of a user of this host, or "" if it has none.
func userName(uid int) (name string) {
	if name, ok := users.Load(uid); ok {
		return name.(string)
	}
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		name = Clean(u.Username)
	}
	users.Store(uid, name)
	return name
}

// userKnown reports whether the start of a process was seen, which says whose it is.
func userKnown(p *memory.Process) bool { return p.UID != 0 || p.Command != "" || p.Library != "" }

// NameOfUser is the name of a process's user; "" if the user has none or is not known.
func NameOfUser(p *memory.Process) string {
	if !userKnown(p) {
		return ""
	}
	return userName(p.UID)
}

// UserOf is the user of a process, or the id if the user has no name; "" if it is not known.
func UserOf(p *memory.Process) string {
	if !userKnown(p) {
		return ""
	}
	return cmp.Or(userName(p.UID), strconv.Itoa(p.UID))
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
