package stack

// lists stores many short lists by id, of values without pointers. They share large chunks,
// which the garbage collector does not scan.
type lists[T any] struct {
	at     map[uint64]extent
	chunks [][]T
}

// An extent is the position of a list.
type extent struct{ chunk, begin, end uint32 }

// chunkLength is the usual number of values in a chunk.
const chunkLength = 1 << 13

func newLists[T any]() lists[T] { return lists[T]{at: make(map[uint64]extent)} }

// add makes a list of n values for the caller to set. It replaces a list with the same id.
func (l *lists[T]) add(id uint64, n int) []T {
	last := len(l.chunks) - 1
	if last < 0 || len(l.chunks[last])+n > cap(l.chunks[last]) {
		last++
		l.chunks = append(l.chunks, make([]T, 0, max(n, l.length(last))))
	}
	begin := len(l.chunks[last])
	l.chunks[last] = l.chunks[last][:begin+n]
	l.at[id] = extent{uint32(last), uint32(begin), uint32(begin + n)}
	return l.chunks[last][begin:]
}

// length is the length of a chunk. The first ones are short: most processes have few
// stacks.
func (l *lists[T]) length(chunk int) int { return min(chunkLength, 256<<min(chunk, 8)) }

// get returns the list with an id; nil if there is none.
func (l *lists[T]) get(id uint64) []T {
	s, ok := l.at[id]
	if !ok {
		return nil
	}
	return l.chunks[s.chunk][s.begin:s.end]
}
