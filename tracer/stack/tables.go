package stack

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/kernel"
)

const (
	// chunkWords is how many words of tables are in a chunk.
	chunkWords = len(bpf.KernelChunk{}.Words)
	// keptChunks is how many chunks (16 KiB each) the tables of files that no
	// process maps any more may take: the next process will map them again.
	keptChunks = 1024
)

// unwindTables are the unwind tables that the kernel side has. Each belongs to a
// file of code and is shared by all processes that map it.
type unwindTables struct {
	chunks, rules *ebpf.Map
	inner         *ebpf.MapSpec
	batch         bool // the kernel takes several chunks at once
	// prepared are chunks whose maps are in place, with nothing in them.
	prepared map[int]*ebpf.Map

	mu      sync.Mutex
	taken   []bool // by chunk
	used    int    // chunks
	numbers map[unwind.Rule]uint16
	idle    []*kernelTable // oldest first
}

// kernelTable is where the kernel side has the rows of a file.
type kernelTable struct {
	index, firstPage, pages uint32
	firstChunk, chunks      int
	users                   int // processes
	gone                    bool
}

var errTablesFull = errors.New("the kernel side's room for unwind tables is full")

func newUnwindTables(objs *kernel.Objects, spec *ebpf.MapSpec) (*unwindTables, error) {
	t := &unwindTables{
		chunks: objs.Chunks, rules: objs.Rules, inner: spec.InnerMap, batch: objs.Support.Batch,
		taken:   make([]bool, objs.Chunks.MaxEntries()),
		numbers: make(map[unwind.Rule]uint16),
	}
	// number 0 stands for "no row" in every table
	if _, err := t.number([]unwind.Rule{{}}); err != nil {
		return nil, err
	}
	if !t.batch {
		t.mu.Lock()
		go func() {
			defer t.mu.Unlock()
			t.prepare(min(preparedChunks, len(t.taken)))
		}()
	}
	return t, nil
}

// preparedChunks are twice as many as a program of Python and ttnn needs.
const preparedChunks = 512

// prepare puts maps into the map of all before there is something to be put into them:
// where that takes a call for each, a program would wait for it with its first stacks.
// What fails here fails again when it is needed.
func (t *unwindTables) prepare(n int) {
	maps := make(map[int]*ebpf.Map)
	var keys, values []uint32
	for i := range n {
		m, err := ebpf.NewMap(t.inner)
		if err != nil {
			break
		}
		maps[i] = m
		keys, values = append(keys, uint32(i)), append(values, uint32(m.FD()))
	}
	if t.putChunks(keys, values) == nil {
		t.prepared = maps
	}
}

// close gives up what was prepared and not used.
func (t *unwindTables) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.prepared {
		m.Close()
	}
	t.prepared = nil
}

// number gives the rules of a table their numbers in the kernel's dictionary.
func (t *unwindTables) number(rules []unwind.Rule) ([]uint16, error) {
	var keys []uint32
	var values []bpf.KernelRule
	next := make(map[unwind.Rule]uint16)
	numbers := make([]uint16, len(rules))
	for i, r := range rules {
		n, known := t.numbers[r]
		if !known {
			n, known = next[r]
		}
		if !known {
			if len(t.numbers)+len(next) == bpf.MaxRules {
				return nil, fmt.Errorf("%w: more than %d different rules", errTablesFull, bpf.MaxRules)
			}
			n = uint16(len(t.numbers) + len(next))
			next[r] = n
			keys = append(keys, uint32(n))
			values = append(values, bpf.KernelRule{
				Cfa: uint8(r.CFA), Bp: uint8(r.BP), BpOffset: r.BPOffset, CfaOffset: r.CFAOffset,
			})
		}
		numbers[i] = n
	}
	if len(keys) > 0 {
		if _, err := t.rules.BatchUpdate(keys, values, nil); err != nil {
			return nil, fmt.Errorf("telling the kernel unwind rules: %w", err)
		}
	}
	maps.Copy(t.numbers, next)
	return numbers, nil
}

// arrange lays a table out in words: its rows, no page's across the end of a
// chunk, then from word index on for each page the word of its first row.
func arrange(table *unwind.Table, numbers []uint16) (words []uint32, index int) {
	first := make([]uint32, len(table.Index))
	for page := range len(table.Index) - 1 {
		rows := table.Rows[table.Index[page]:table.Index[page+1]]
		if left := chunkWords - len(words)%chunkWords; len(rows) > left {
			words = pad(words)
		}
		first[page] = uint32(len(words))
		for _, row := range rows {
			words = append(words, row&0xffff0000|uint32(numbers[row&0xffff]))
		}
	}
	index = len(words)
	first[len(first)-1] = uint32(index)
	return pad(append(words, first...)), index
}

// pad fills the last chunk with rows behind all others.
func pad(words []uint32) []uint32 {
	for len(words)%chunkWords != 0 {
		words = append(words, ^uint32(0))
	}
	return words
}

// load gives tables to the kernel, all at once or none: the kernel waits for
// running programs after every change. They have one user each.
func (t *unwindTables) load(tables []*unwind.Table) (loaded []*kernelTable, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	defer func() {
		if err != nil {
			for _, k := range loaded {
				t.free(k)
			}
			loaded = nil
		}
	}()
	var keys, values []uint32
	var inner []*ebpf.Map
	defer func() {
		for _, m := range inner {
			m.Close() // the kernel keeps it
		}
	}()
	for _, table := range tables {
		numbers, err := t.number(table.Rules)
		if err != nil {
			return loaded, err
		}
		words, index := arrange(table, numbers)
		n := len(words) / chunkWords
		at, err := t.place(n)
		if err != nil {
			return loaded, err
		}
		base := uint32(at * chunkWords)
		for page := range table.Index {
			words[index+page] += base
		}
		loaded = append(loaded, &kernelTable{
			index: base + uint32(index), firstPage: table.FirstPage, pages: uint32(len(table.Index) - 1),
			firstChunk: at, chunks: n, users: 1,
		})
		for k := range n {
			m, inPlace := t.prepared[at+k]
			if !inPlace {
				if m, err = ebpf.NewMap(t.inner); err != nil {
					return loaded, fmt.Errorf("making room for unwind tables: %w", err)
				}
				keys, values = append(keys, uint32(at+k)), append(values, uint32(m.FD()))
			}
			delete(t.prepared, at+k)
			inner = append(inner, m)
			if err := m.Put(uint32(0), words[k*chunkWords:(k+1)*chunkWords]); err != nil {
				return loaded, fmt.Errorf("telling the kernel an unwind table: %w", err)
			}
		}
	}
	if err := t.putChunks(keys, values); err != nil {
		return loaded, fmt.Errorf("telling the kernel unwind tables: %w", err)
	}
	return loaded, nil
}

// putsAtOnce is how many chunks are put at the same time where each takes a call.
const putsAtOnce = 256

// putChunks puts chunks' maps into the map of all. With each call the kernel waits until
// no program runs that began before: where it takes one chunk a call, many threads wait
// at the same time.
func (t *unwindTables) putChunks(keys, values []uint32) error {
	if len(keys) == 0 {
		return nil
	}
	if t.batch {
		_, err := t.chunks.BatchUpdate(keys, values, nil)
		return err
	}
	var next atomic.Int64
	errs := make([]error, min(putsAtOnce, len(keys)))
	var putting sync.WaitGroup
	for worker := range errs {
		putting.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(keys)) && errs[worker] == nil; i = next.Add(1) - 1 {
				errs[worker] = t.chunks.Put(keys[i], values[i])
			}
		})
	}
	putting.Wait()
	return errors.Join(errs...)
}

// place finds n chunks in a row that are free, and takes them.
func (t *unwindTables) place(n int) (int, error) {
	for {
		free := 0
		for i := range t.taken {
			if t.taken[i] {
				free = 0
				continue
			}
			if free++; free == n {
				first := i - n + 1
				for k := first; k <= i; k++ {
					t.taken[k] = true
				}
				t.used += n
				return first, nil
			}
		}
		if len(t.idle) == 0 {
			return 0, errTablesFull
		}
		t.drop()
	}
}

// use and release count the processes that map a table's file.
func (t *unwindTables) use(k *kernelTable) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.gone {
		return false
	}
	if k.users == 0 {
		for i, other := range t.idle {
			if other == k {
				t.idle = append(t.idle[:i], t.idle[i+1:]...)
				break
			}
		}
	}
	k.users++
	return true
}

func (t *unwindTables) release(k *kernelTable) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if k.users--; k.users > 0 {
		return
	}
	t.idle = append(t.idle, k)
	idle := 0
	for _, k := range t.idle {
		idle += k.chunks
	}
	for ; idle > keptChunks; idle -= t.drop() {
	}
}

// drop gives up the table that has been without a user for longest, and says how
// many chunks it had.
func (t *unwindTables) drop() int {
	k := t.idle[0]
	t.idle = t.idle[1:]
	t.free(k)
	return k.chunks
}

// free gives a table's chunks back.
func (t *unwindTables) free(k *kernelTable) {
	k.gone = true
	for n := k.firstChunk; n < k.firstChunk+k.chunks; n++ {
		_ = t.chunks.Delete(uint32(n)) // it is overwritten when it is used again
		t.taken[n] = false
	}
	t.used -= k.chunks
}
