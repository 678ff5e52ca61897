package stack

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/kernel"
)

const (
	// chunkWords is the number of words in a chunk.
	chunkWords = len(bpf.KernelChunk{}.Words)
	// maxIdleChunks bounds the chunks (16 KiB each) for tables that no process uses, so that
	// the next process finds them loaded.
	maxIdleChunks = 1024
)

// unwindTables are the unwind tables in the kernel. Each belongs to a code file and is
// shared by all processes that map it.
type unwindTables struct {
	chunks, rules *ebpf.Map
	inner         *ebpf.MapSpec
	batch         bool // the kernel accepts several chunks at once
	// prepared are empty chunks that are already in the map of chunks.
	prepared map[int]*ebpf.Map

	mu      sync.Mutex
	taken   []bool // by chunk
	used    int    // chunks
	numbers map[unwind.Rule]uint16
	idle    []*kernelTable // oldest first
}

// kernelTable is the position of a file's rows in the kernel side.
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

// preparedChunks is twice what a program of Python and ttnn needs.
const preparedChunks = 512

// prepare puts empty chunks into the map of chunks in advance: where each takes a call, a
// program's first stacks would wait for it. Errors are ignored; they occur again at the
// time of use.
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

// close releases unused prepared chunks.
func (t *unwindTables) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.prepared {
		m.Close()
	}
	t.prepared = nil
}

// number assigns the rules of a table their numbers in the kernel's dictionary.
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
			return nil, fmt.Errorf("storing unwind rules: %w", err)
		}
	}
	maps.Copy(t.numbers, next)
	return numbers, nil
}

// arrange encodes a table as words: its rows, with no page's rows crossing the end of a
// chunk, and from word index on the first row's word for each page.
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

// pad fills the last chunk with rows that sort behind all others.
func pad(words []uint32) []uint32 {
	for len(words)%chunkWords != 0 {
		words = append(words, ^uint32(0))
	}
	return words
}

// load stores tables in the kernel, all or none: the kernel waits for running programs
// after every change. Each table has one user.
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
			m.Close() // the kernel holds a reference
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
				return loaded, fmt.Errorf("storing an unwind table: %w", err)
			}
		}
	}
	if err := t.putChunks(keys, values); err != nil {
		return loaded, fmt.Errorf("storing unwind tables: %w", err)
	}
	return loaded, nil
}

// putsAtOnce is the number of concurrent calls where each chunk takes one.
const putsAtOnce = 256

// putChunks puts chunks into the map of chunks. With each call the kernel waits until all
// programs that are running have ended, so where it accepts one chunk a call, many threads
// wait at the same time.
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

// place reserves n consecutive free chunks.
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
		t.idle = slices.DeleteFunc(t.idle, func(other *kernelTable) bool { return other == k })
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
	for ; idle > maxIdleChunks; idle -= t.drop() {
	}
}

// drop removes the table that has been unused for longest, and returns the number of its
// chunks.
func (t *unwindTables) drop() int {
	k := t.idle[0]
	t.idle = t.idle[1:]
	t.free(k)
	return k.chunks
}

// free releases a table's chunks.
func (t *unwindTables) free(k *kernelTable) {
	k.gone = true
	for n := k.firstChunk; n < k.firstChunk+k.chunks; n++ {
		_ = t.chunks.Delete(uint32(n)) // else it is overwritten on reuse
		t.taken[n] = false
	}
	t.used -= k.chunks
}
