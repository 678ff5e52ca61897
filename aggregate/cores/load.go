package cores

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

// On returns the bytes on a core; l may be nil.
func (l *Load) On(c Core) uint64 {
	if l == nil {
		return 0
	}
	return l.cores[c]
}

// Fullest returns the core with the most bytes, and these; of equal cores the first by rows.
func (l *Load) Fullest() (fullest Core, most uint64) {
	for c, bytes := range l.cores {
		if bytes > most || bytes == most && compareRows(c, fullest) < 0 {
			fullest, most = c, bytes
		}
	}
	return fullest, most
}
