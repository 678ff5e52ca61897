package find

import (
	"maps"
	"slices"
	"sync"

	"ttmem/tracer/host"
	"ttmem/tracer/internal/libraries"
)

// unread are what the named processes and their children have mapped, and what is still to be read: on a busy host a
// program may have ended by then, and tracing with it. The zero value is empty.
type unread struct {
	mu   sync.Mutex
	list map[mappedFile]unreadMapping
}

type mappedFile struct {
	pid  int
	file host.FileID
}

type unreadMapping struct {
	host.NewMapping
	user int
}

// maxUnread bounds the list, as a program may map anything.
const maxUnread = 4096

func (u *unread) add(m host.NewMapping, user int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.list == nil {
		u.list = make(map[mappedFile]unreadMapping)
	}
	if len(u.list) < maxUnread {
		u.list[mappedFile{m.PID, m.File}] = unreadMapping{m, user}
	}
}

func (u *unread) remove(m host.NewMapping) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.list, mappedFile{m.PID, m.File})
}

func (u *unread) all() []unreadMapping {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Collect(maps.Values(u.list))
}

// Finish reports whether all is read that the named processes and their children have mapped. Once enough has been
// waited for, what is left counts as a loss if it may be a library.
func (f *Finder) Finish(waited bool) bool {
	list := f.unread.all()
	if len(list) == 0 || !waited {
		return len(list) == 0
	}
	for _, m := range list {
		f.unread.remove(m.NewMapping)
		l := Loss{Beside: !libraries.HasUsualName(m.Path), User: m.user}
		switch named, runs := host.NamedLikeLibrary(m.Path), f.Kernel.Lists(m.PID); {
		case named && runs:
			l.Cause = NotTraced
		case named:
			l.Cause = EndedBefore
		case !runs && m.End-m.Start >= leastCode:
			l.Cause = EndedUnread
		default:
			continue
		}
		if !l.Beside {
			f.Libraries.Seen.Store(true)
		}
		f.lost(m.NewMapping, l)
	}
	return true
}
