package page

import (
	"os"
	"os/user"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

func TestUsersOfPIDs(t *testing.T) {
	me, err := user.Current()
	qt.Assert(t, qt.IsNil(err))
	process := func(pid, uid int) memory.Process {
		return memory.Process{PID: pid, About: memory.About{UID: uid, Command: "model"}}
	}
	const nameless = 1<<30 + 7
	s := NewSupplement(Clock{}, &memory.Snapshot{Processes: []memory.Process{
		process(7, os.Getuid()), process(77, nameless), {PID: 8}, // whose start was not seen
		process(9, os.Getuid()), process(9, nameless),
	}})
	user := func(pid int, want string) {
		t.Helper()
		qt.Check(t, qt.Equals(s.User(pid), want))
	}
	user(7, me.Username)
	user(77, strconv.Itoa(nameless))
	user(8, "")
	user(9, "")
	user(1, "")
	s.Apply(&event.Event{Kind: event.ProcessStart, PID: 9, UID: os.Getuid(), Start: &event.Start{Command: "model"}}) // the earlier ones have ended
	user(9, me.Username)
}
