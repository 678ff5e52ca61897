package stack

// lists are lists with ids, of what has no pointers: many short ones, which are kept
// together so that the garbage collector has nothing to look at.
type lists[T any] struct {
	at     map[uint64]extent
	chunks [][]T
}

// An extent is where a list is.
type extent struct{ chunk, begin, end uint32 }

// chunkLength is how many values are kept together, where lists are not longer.
const chunkLength = 1 << 13

func newLists[T any]() lists[T] { return lists[T]{at: make(map[uint64]extent)} }

// add makes a list of n values, which are to be set. Any other with its id is dropped.
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

// length is how long a chunk is: most processes have few stacks.
func (l *lists[T]) length(chunk int) int { return min(chunkLength, 256<<min(chunk, 8)) }

// get is the list with an id; nil where there is none.
func (l *lists[T]) get(id uint64) []T {
	s, ok := l.at[id]
	if !ok {
		return nil
	}
	return l.chunks[s.chunk][s.begin:s.end]
}
