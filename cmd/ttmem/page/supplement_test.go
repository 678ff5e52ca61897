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

func TestUsersStandBesidePIDs(t *testing.T) {
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
	add := func(text string) string { return string(s.Append(nil, []byte(text))) }
	qt.Check(t, qt.Equals(add(`{"pid":7,"a":[{"pid":77},{"pid":8}]}`),
		`{"pid":7,"user":"`+me.Username+`","a":[{"pid":77,"user":"`+strconv.Itoa(nameless)+`"},{"pid":8}]}`))
	qt.Check(t, qt.Equals(add(`{"pid":9}{"pid":1}{"message":"\"pid\":7"}{"pid":`), `{"pid":9}{"pid":1}{"message":"\"pid\":7"}{"pid":`))
	s.Apply(&event.Event{Kind: event.ProcessStart, PID: 9, UID: os.Getuid(), Start: &event.Start{Command: "model"}}) // the earlier ones have ended
	qt.Check(t, qt.Equals(add(`{"pid":9}`), `{"pid":9,"user":"`+me.Username+`"}`))
}
