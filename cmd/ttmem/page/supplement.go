package page

import (
	"bytes"
	"encoding/json"
	"io"
	"strconv"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A Supplement adds to documents what all of them have beside times and process ids: the times by
// the wall clock, and the users of the processes.
type Supplement struct {
	Clock Clock
	names UserNames
	users map[int]pidUser
	timed []byte
}

// A pidUser is the user of a process: the name, "" if it is not known or if several users had the
// PID, and the text that follows the pid.
type pidUser struct {
	name  string
	field []byte
}

// NewSupplement returns the supplement for documents about the processes of snapshots.
func NewSupplement(clock Clock, of ...*memory.Snapshot) *Supplement {
	s := &Supplement{Clock: clock, names: make(UserNames), users: make(map[int]pidUser)}
	for _, snapshot := range of {
		s.Add(snapshot.Processes)
	}
	return s
}

// Add adds processes. They may have ended, and others may have had the same PID.
func (s *Supplement) Add(processes []memory.Process) {
	for i := range processes {
		p := &processes[i]
		user := s.names.Of(p)
		if other, known := s.users[p.PID]; known && other.name != user {
			user = ""
		}
		s.set(p.PID, user)
	}
}

// Apply applies an event: of a process that begins, earlier ones with its PID have ended.
func (s *Supplement) Apply(e *event.Event) {
	if e.Kind == event.ProcessStart {
		s.set(e.PID, s.names.Of(&memory.Process{About: memory.About{UID: e.UID, Command: e.Started().Command, Library: e.Started().Library}}))
	}
}

func (s *Supplement) set(pid int, user string) {
	one := pidUser{name: user}
	if user != "" {
		quoted, _ := json.Marshal(user) // has no error for a string
		one.field = append([]byte(`,"user":`), quoted...)
	}
	s.users[pid] = one
}

// User returns the user of a process; "" if it is not known.
func (s *Supplement) User(pid int) string { return s.users[pid].name }

// SeveralUsers reports whether the processes have different users.
func (s *Supplement) SeveralUsers() bool { return len(s.names) > 1 }

// Writer returns a writer of documents that adds the supplements, in parts, as documents may be large.
// What is written at once must have whole keys and numbers.
func (s *Supplement) Writer(w io.Writer) io.Writer { return &supplemented{Supplement: s, to: w} }

type supplemented struct {
	*Supplement
	to   io.Writer
	part []byte
}

func (s *supplemented) Write(text []byte) (n int, err error) {
	for len(text) > n && err == nil {
		part := text[n:]
		if len(part) > jsonPart { // a part may end before any key
			if comma := bytes.Index(part[jsonPart:], []byte(`,"`)); comma >= 0 {
				part = part[:jsonPart+comma]
			}
		}
		s.part = s.Append(s.part[:0], part)
		_, err = s.to.Write(s.part)
		n += len(part)
	}
	return n, err
}

// Append appends a document, or lines of documents, with the supplements.
func (s *Supplement) Append(b, text []byte) []byte {
	s.timed = s.Clock.AddWall(s.timed[:0], text)
	return s.addUsers(b, s.timed)
}

var pidKey = []byte(`"pid":`)

// addUsers appends a document with user after each pid.
func (s *Supplement) addUsers(b, text []byte) []byte {
	for {
		before, after, found := bytes.Cut(text, pidKey)
		if !found {
			return append(b, text...)
		}
		n := digits(after)
		b = append(append(append(b, before...), pidKey...), after[:n]...)
		text = after[n:]
		pid, err := strconv.Atoi(string(after[:n]))
		if err == nil {
			b = append(b, s.users[pid].field...)
		}
	}
}

// digits is the number of digits at the beginning of text.
func digits(text []byte) int { return len(text) - len(bytes.TrimLeft(text, "0123456789")) }
