package stack

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/cilium/ebpf"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/kernel"
)

const (
	// chunkWords is the number of words in a chunk.
	chunkWords = len(bpf.KernelChunk{}.Words)
	// maxIdleChunks bounds the chunks (16 KiB each) of tables that no process uses, so that
	// the next process finds them loaded. PyTorch and ttnn together take 2,200.
	maxIdleChunks = 4096
	// maxUserRules bounds the different rules in the tables of a user other than root, which
	// are never removed. ttnn, CPython and LLVM together have 2,400.
	maxUserRules = bpf.MaxRules / 8
)

// unwindTables are the unwind tables in the kernel. Each belongs to a code file and is
// shared by all processes that map it.
type unwindTables struct {
	rules *ebpf.Map
	// outer has the existing slabs of chunks; inner describes a slab.
	outer *ebpf.Map
	inner *ebpf.MapSpec

	choosing sync.Mutex // files are said to be unread by one at a time: another may be about to use their tables

	growing sync.Mutex
	slabs   []*ebpf.Map

	mu      sync.Mutex // never held during a call that waits for the kernel
	taken   []bool     // by chunk
	numbers map[unwind.Rule]uint16
	idle    []*kernelTable // oldest first
	shares  map[int]share  // by user
}

// share is the space of a user's tables: those that were first loaded for one of the user's
// processes.
type share struct{ chunks, rules int }

// kernelTable is the position of a file's rows in the kernel side.
type kernelTable struct {
	index, firstPage, pages uint32
	firstChunk, chunks      int
	users                   int // processes
	owner                   int // the user to whose share it counts
	gone                    bool
}

var (
	errTablesFull = errors.New("the kernel side's room for unwind tables is full")
	errShareFull  = fmt.Errorf("%w for this user", errTablesFull)
)

func newUnwindTables(objs *kernel.Objects, spec *ebpf.MapSpec) (*unwindTables, error) {
	t := &unwindTables{
		rules: objs.Rules, outer: objs.Slabs, inner: spec.InnerMap,
		taken:   make([]bool, spec.MaxEntries*spec.InnerMap.MaxEntries),
		numbers: make(map[unwind.Rule]uint16), shares: make(map[int]share),
	}
	// number 0 stands for "no row" in every table
	if _, err := t.number([]unwind.Rule{{}}, 0); err != nil {
		return nil, err
	}
	return t, nil
}

// close releases the slabs, which the kernel keeps until its programs end.
func (t *unwindTables) close() {
	t.growing.Lock()
	defer t.growing.Unlock()
	for _, slab := range t.slabs {
		slab.Close()
	}
	t.slabs = nil
}

// number assigns the rules of a user's table their numbers in the kernel's dictionary.
func (t *unwindTables) number(rules []unwind.Rule, user int) ([]uint16, error) {
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
	share := t.shares[user]
	if share.rules += len(keys); share.rules > maxUserRules && user != 0 {
		return nil, errShareFull
	}
	if len(keys) > 0 {
		if _, err := t.rules.BatchUpdate(keys, values, nil); err != nil {
			return nil, fmt.Errorf("storing unwind rules: %w", err)
		}
	}
	maps.Copy(t.numbers, next)
	t.shares[user] = share
	return numbers, nil
}

// arrange encodes a table as words: first the rows, where the rows of a page do not cross the end
// of a chunk; then, from word index on, the position of the first row of each page.
func arrange(table *unwind.Table, numbers []uint16) (words []uint32, index int) {
	words = make([]uint32, 0, len(table.Rows)+len(table.Index)+len(table.Rows)/8+chunkWords)
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

// load stores a table in the kernel for a process of a user. Its count of users is 1.
func (t *unwindTables) load(table *unwind.Table, owner int) (*kernelTable, error) {
	t.mu.Lock()
	numbers, err := t.number(table.Rules, owner)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	words, index := arrange(table, numbers)
	first, pages := table.FirstPage, len(table.Index)-1 // the last use of the table, which may be large
	n := len(words) / chunkWords
	if n > maxIdleChunks { // it would be dropped before a process uses it
		return nil, fmt.Errorf("%w: more than %d chunks", unwind.ErrTooLarge, maxIdleChunks)
	}
	t.mu.Lock()
	at, err := t.place(n, owner)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	base := uint32(at * chunkWords)
	for page := range pages + 1 {
		words[index+page] += base
	}
	k := &kernelTable{
		index: base + uint32(index), firstPage: first, pages: uint32(pages),
		firstChunk: at, chunks: n, users: 1, owner: owner,
	}
	if err := t.write(at, words); err != nil {
		t.mu.Lock()
		t.free(k)
		t.mu.Unlock()
		return nil, fmt.Errorf("storing an unwind table: %w", err)
	}
	return k, nil
}

// write stores words in consecutive chunks, which nothing else uses.
func (t *unwindTables) write(chunk int, words []uint32) error {
	inSlab := int(t.inner.MaxEntries)
	for ; len(words) > 0; chunk, words = chunk+1, words[chunkWords:] {
		slab, err := t.slab(chunk / inSlab)
		if err != nil {
			return err
		}
		if err := slab.Put(uint32(chunk%inSlab), words[:chunkWords]); err != nil {
			return err
		}
	}
	return nil
}

// slab returns a slab, and adds it if needed.
func (t *unwindTables) slab(n int) (*ebpf.Map, error) {
	t.growing.Lock()
	defer t.growing.Unlock()
	for len(t.slabs) <= n {
		slab, err := ebpf.NewMap(t.inner)
		if err != nil {
			return nil, err
		}
		if err := t.outer.Put(uint32(len(t.slabs)), slab); err != nil {
			slab.Close()
			return nil, err
		}
		t.slabs = append(t.slabs, slab)
	}
	return t.slabs[n], nil
}

// place reserves n consecutive free chunks. A user other than root gets at most half of all.
func (t *unwindTables) place(n, owner int) (int, error) {
	for owner != 0 && t.shares[owner].chunks+n > len(t.taken)/2 {
		i := slices.IndexFunc(t.idle, func(k *kernelTable) bool { return k.owner == owner })
		if i < 0 {
			return 0, errShareFull
		}
		t.drop(i)
	}
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
				t.take(n, owner)
				return first, nil
			}
		}
		if len(t.idle) == 0 {
			return 0, errTablesFull
		}
		t.drop(0)
	}
}

// take counts n chunks more.
func (t *unwindTables) take(n, owner int) {
	share := t.shares[owner]
	share.chunks += n
	t.shares[owner] = share
}

func (t *unwindTables) has(k *kernelTable) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !k.gone
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
	for ; idle > maxIdleChunks; idle -= t.drop(0) {
	}
}

func (t *unwindTables) releaseAll(used tablesInUse) {
	for _, k := range used {
		t.release(k)
	}
}

// of returns the tables of the mappings' files, which stay in use until they are
// released, and the files whose rows have to be read first. With retry, these include files
// whose tables did not fit before.
func (t *unwindTables) of(mappings []codeMapping, retry bool) (used tablesInUse, unread []*codeFile, err error) {
	t.choosing.Lock()
	defer t.choosing.Unlock()
	used = make(tablesInUse)
	seen := make(map[*codeFile]bool)
	for _, m := range mappings {
		f := m.file
		if f.elf == nil || seen[f] {
			continue
		}
		seen[f] = true
		switch {
		case !f.read.Load():
			unread = append(unread, f)
		case errors.Is(f.refusal, errTablesFull) && retry:
			f.read.Store(false)
			unread = append(unread, f)
		case f.refusal != nil:
			err = f.refusal
		case f.table == nil: // it has no rows
		case t.use(f.table):
			used[f] = f.table
		default: // the kernel no longer has them
			f.read.Store(false)
			unread = append(unread, f)
		}
	}
	return used, unread, err
}

// drop removes an idle table, and returns the number of its chunks.
func (t *unwindTables) drop(i int) int {
	k := t.idle[i]
	t.idle = slices.Delete(t.idle, i, i+1)
	t.free(k)
	return k.chunks
}

// free releases a table's chunks. The kernel side no longer reads them: the spaces that referred
// to them were replaced, and the kernel has waited for all running programs since.
func (t *unwindTables) free(k *kernelTable) {
	k.gone = true
	for n := k.firstChunk; n < k.firstChunk+k.chunks; n++ {
		t.taken[n] = false
	}
	t.take(-k.chunks, k.owner)
}
