package term

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"ttmem/tracer/host"
)

const (
	// limitInterval is the time in which a message is shown once.
	limitInterval = time.Minute
	// linesPerUser is how many lines about processes of a user are shown in that time.
	linesPerUser = 30
)

// A Limiter bounds messages about processes, which any user can cause: each is shown once a minute,
// whatever numbers are in it, and so are linesPerUser of each user. The others are counted.
type Limiter struct {
	warn func(string)

	mu    sync.Mutex
	shown map[string]*shown // by message without numbers
	users map[int]*shown
}

// shown counts what was and was not shown since a timer began.
type shown struct {
	timer       *time.Timer
	lines, more int
	last        string // of those that were not shown
}

// NewLimiter returns a Limiter that shows messages with warn.
func NewLimiter(warn func(string)) *Limiter {
	return &Limiter{warn: warn, shown: make(map[string]*shown), users: make(map[int]*shown)}
}

// Warn shows a message about a user's process or file.
func (l *Limiter) Warn(user int, text string) { l.show(user, text, withoutNumbers(text)) }

// Line shows a line of which there is one for each process.
func (l *Limiter) Line(user int, text string) { l.show(user, text, "") }

func (l *Limiter) show(user int, text, message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shown[message]; s != nil {
		s.more++
		s.last = text
		return
	}
	u := l.users[user]
	if u == nil {
		u = new(shown)
		u.timer = time.AfterFunc(limitInterval, func() { l.endUser(user) })
		l.users[user] = u
	}
	if u.lines++; u.lines > linesPerUser {
		u.more++
		return
	}
	if message != "" {
		s := new(shown)
		s.timer = time.AfterFunc(limitInterval, func() { l.endMessage(message) })
		l.shown[message] = s
	}
	l.warn(text)
}

func (l *Limiter) endMessage(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.shown[message]; s != nil {
		s.timer.Stop()
		delete(l.shown, message)
		if s.more > 0 {
			l.warn(fmt.Sprintf("… and %d more: %s", s.more, s.last))
		}
	}
}

func (l *Limiter) endUser(user int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if u := l.users[user]; u != nil {
		u.timer.Stop()
		delete(l.users, user)
		of := ""
		switch user {
		case host.NoUser:
		case host.NoProcess:
			of = " about processes that ended at once"
		default:
			of = fmt.Sprintf(" about processes of user %d", user)
		}
		if u.more > 0 {
			l.warn(fmt.Sprintf("… and %d more lines%s", u.more, of))
		}
	}
}

// End shows the counts, at the end of a command.
func (l *Limiter) End() {
	l.mu.Lock()
	messages, users := slices.Sorted(maps.Keys(l.shown)), slices.Sorted(maps.Keys(l.users))
	l.mu.Unlock()
	for _, message := range messages {
		l.endMessage(message)
	}
	for _, user := range users {
		l.endUser(user)
	}
}

// withoutNumbers returns a text with one # for each number.
func withoutNumbers(text string) string {
	var b strings.Builder
	inNumber := false
	for _, r := range text {
		isDigit := '0' <= r && r <= '9'
		switch {
		case !isDigit:
			b.WriteRune(r)
		case !inNumber:
			b.WriteByte('#')
		}
		inNumber = isDigit
	}
	return b.String()
}
