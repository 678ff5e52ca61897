package cores

import "cmp"

// A Load is the bytes of buffers on single cores, for each core. Buffers do not share addresses,
// so their sizes add up. The zero value is ready to use.
type Load struct{ cores map[Core]uint64 }

// Add adds a buffer with this many bytes on each core of a set.
func (l *Load) Add(set *Set, bytes uint64) {
	if l.cores == nil {
		l.cores = make(map[Core]uint64)
	}
	for _, c := range set.cores {
		l.cores[c] += bytes
	}
}

// Remove removes a buffer that was added.
func (l *Load) Remove(set *Set, bytes uint64) {
	for _, c := range set.cores {
		l.take(c, bytes)
	}
}

// Subtract removes the buffers of another Load, which must have been added.
func (l *Load) Subtract(all *Load) {
	for c, bytes := range all.cores {
		l.take(c, bytes)
	}
}

func (l *Load) take(c Core, bytes uint64) {
	if l.cores[c] -= bytes; l.cores[c] == 0 {
		delete(l.cores, c)
	}
}

// Empty reports whether there is no buffer on a single core.
func (l *Load) Empty() bool { return len(l.cores) == 0 }

// On returns the bytes on a core.
func (l *Load) On(c Core) uint64 { return l.cores[c] }

// Max returns the bytes on the fullest core.
func (l *Load) Max() (most uint64) {
	for _, bytes := range l.cores {
		most = max(most, bytes)
	}
	return most
}

// A Top is the fullest core. Bytes is its use by buffers on single cores and by circular buffers,
// Static the part of circular buffers.
type Top struct {
	Core          Core
	Bytes, Static uint64
}

// TopOf returns the fullest core. Without buffers on single cores Core stays zero, because it
// does not matter then.
func TopOf(l *Load, u *Usage) Top {
	top, found := Top{Bytes: u.max, Static: u.max}, false
	for c, bytes := range l.cores {
		static := u.On(c)
		more := cmp.Compare(bytes+static, top.Bytes)
		if more > 0 || more == 0 && (!found || cmp.Or(cmp.Compare(c.Y, top.Core.Y), cmp.Compare(c.X, top.Core.X)) < 0) {
			top, found = Top{c, bytes + static, static}, true
		}
	}
	if !found && len(l.cores) > 0 {
		top.Core, _ = u.Fullest() // which has none of these buffers
	}
	return top
}
