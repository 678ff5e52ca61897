package stack

import (
	"encoding/binary"
	"errors"
	"golang.org/x/sys/unix"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/kernel"
)

// randomTable returns a table in the form of unwind.Build: the offsets of a page ascend
// from 0, or the page has no rows.
func randomTable(r *rand.Rand, pages, maxRowsOfPage int) *unwind.Table {
	t := &unwind.Table{FirstPage: r.Uint32N(1 << 20), Rules: []unwind.Rule{{}, {CFA: unwind.Unsupported}}}
	for range 1 + r.IntN(300) {
		t.Rules = append(t.Rules, unwind.Rule{CFA: unwind.SP, CFAOffset: int32(8 * r.IntN(1<<16)), BPOffset: int16(r.IntN(100))})
	}
	for range pages {
		t.Index = append(t.Index, uint32(len(t.Rows)))
		n := r.IntN(maxRowsOfPage + 1)
		switch r.IntN(8) {
		case 0:
			n = 0
		case 1:
			n = maxRowsOfPage
		}
		offsets := r.Perm(1 << unwind.PageShift)[:n]
		slices.Sort(offsets)
		for i, offset := range offsets {
			if i == 0 {
				offset = 0
			}
			t.Rows = append(t.Rows, uint32(offset)<<16|uint32(r.IntN(len(t.Rules))))
		}
	}
	t.Index = append(t.Index, uint32(len(t.Rows)))
	return t
}

// kernelSearch finds the number of the rule for an address as bpf/src/unwind.h does; false
// if the table has none.
func kernelSearch(words func(at uint32) uint32, k *kernelTable, addr uint64) (uint16, bool) {
	page := uint32(addr>>unwind.PageShift) - k.firstPage
	if page >= k.pages {
		return 0, false
	}
	from, to := words(k.index+page), words(k.index+page+1)
	base, offset := from&^uint32(chunkWords-1), uint32(addr&(1<<unwind.PageShift-1))
	if to <= from || words(from)>>16 > offset {
		return 0, false
	}
	place := from
	for half := uint32(chunkWords / 2); half > 0; half /= 2 {
		if next := place + half; next < to && next-base < uint32(chunkWords) && words(next)>>16 <= offset {
			place = next
		}
	}
	return uint16(words(place)), true
}

// someAddresses returns addresses in and around a table's pages.
func someAddresses(r *rand.Rand, t *unwind.Table, n int) (list []uint64) {
	first := uint64(t.FirstPage) << unwind.PageShift
	end := first + uint64(len(t.Index)-1)<<unwind.PageShift
	list = []uint64{0, first - 1, first, end - 1, end, ^uint64(0)}
	for range n {
		page := r.IntN(len(t.Index) - 1)
		rows := t.Rows[t.Index[page]:t.Index[page+1]]
		at := first + uint64(page)<<unwind.PageShift
		list = append(list, at, at+1<<unwind.PageShift-1)
		if len(rows) > 0 {
			row := at + uint64(rows[r.IntN(len(rows))]>>16)
			list = append(list, row, row+1, row-1)
		}
	}
	return list
}

// For any table, the kernel's search in the words finds the table's rule.
func TestRowsNeverCrossAChunk(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	compared := 0
	for _, c := range []struct{ pages, rows int }{
		{1, 0}, {1, 1}, {1, 4096}, {2, 4096}, {40, 4096}, {9000, 3}, {3000, 40}, {500, 700}, {4095, 1}, {4096, 1}, {4097, 2},
	} {
		table := randomTable(r, c.pages, c.rows)
		numbers := make([]uint16, len(table.Rules))
		for i, n := range r.Perm(len(numbers)) {
			numbers[i] = uint16(n)
		}
		words, index := arrange(table, numbers)
		qt.Assert(t, qt.Equals(len(words)%chunkWords, 0))
		k := &kernelTable{index: uint32(index), firstPage: table.FirstPage, pages: uint32(c.pages)}
		for _, addr := range someAddresses(r, table, 300) {
			got, ok := kernelSearch(func(at uint32) uint32 { return words[at] }, k, addr)
			want := table.Find(addr)
			var rule unwind.Rule
			if ok {
				rule = table.Rules[slices.Index(numbers, got)]
			}
			if rule != want {
				t.Fatalf("%d pages of up to %d rows: %#x has %v, the kernel would find %v", c.pages, c.rows, addr, want, rule)
			}
			compared++
		}
	}
	t.Logf("%d addresses", compared)
}

// tableStore returns a store with this many chunks, a multiple of 4, in four slabs.
func tableStore(t *testing.T, chunks uint32) *unwindTables {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the kernel's maps need root")
	}
	k, err := kernel.Detect()
	qt.Assert(t, qt.IsNil(err))
	spec := k.Spec
	spec.Maps["slabs"].MaxEntries, spec.Maps["slabs"].InnerMap.MaxEntries = 4, chunks/4
	objs := &kernel.Objects{Support: k}
	for name, m := range map[string]**ebpf.Map{"slabs": &objs.Slabs, "rules": &objs.Rules} {
		*m, err = ebpf.NewMap(spec.Maps[name])
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { (*m).Close() })
	}
	store, err := newUnwindTables(objs, spec.Maps["slabs"])
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(store.close)
	return store
}

// loadAll loads tables one after the other, until one is refused.
func loadAll(store *unwindTables, tables ...*unwind.Table) (loaded []*kernelTable, err error) {
	for _, table := range tables {
		k, err := store.load(table, 0)
		if err != nil {
			return loaded, err
		}
		loaded = append(loaded, k)
	}
	return loaded, nil
}

// kernelWords reads the kernel side's words.
func kernelWords(t *testing.T, store *unwindTables) func(at uint32) uint32 {
	chunks := make(map[uint32][]byte)
	return func(at uint32) uint32 {
		n := at / uint32(chunkWords)
		if chunks[n] == nil {
			var id ebpf.MapID
			qt.Assert(t, qt.IsNil(store.outer.Lookup(n/store.inner.MaxEntries, &id)))
			slab, err := ebpf.NewMapFromID(id)
			qt.Assert(t, qt.IsNil(err))
			defer slab.Close()
			chunks[n], err = slab.LookupBytes(n % store.inner.MaxEntries)
			qt.Assert(t, qt.IsNil(err))
		}
		return binary.NativeEndian.Uint32(chunks[n][4*(at%uint32(chunkWords)):])
	}
}

// assertHas checks that the kernel side finds a table's rules.
func assertHas(t *testing.T, store *unwindTables, k *kernelTable, table *unwind.Table) {
	t.Helper()
	r := rand.New(rand.NewPCG(3, 4))
	words := kernelWords(t, store)
	for _, addr := range someAddresses(r, table, 200) {
		var got bpf.KernelRule
		if number, ok := kernelSearch(words, k, addr); ok {
			qt.Assert(t, qt.IsNil(store.rules.Lookup(uint32(number), &got)))
		}
		want := table.Find(addr)
		qt.Assert(t, qt.Equals(got, bpf.KernelRule{
			Cfa: uint8(want.CFA), Bp: uint8(want.BP), BpOffset: want.BPOffset, CfaOffset: want.CFAOffset,
		}), qt.Commentf("%#x", addr))
	}
}

// assertCounted checks that the chunks in use are those of the tables.
func assertCounted(t *testing.T, store *unwindTables, tables ...*kernelTable) {
	t.Helper()
	want := 0
	for _, k := range tables {
		want += k.chunks
	}
	qt.Check(t, qt.Equals(chunksOf(store), want))
}

// Tables are found in the kernel, and equal rules share a number.
func TestTablesInTheKernel(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	store := tableStore(t, 64)
	tables := []*unwind.Table{randomTable(r, 300, 20), randomTable(r, 3, 4096), randomTable(r, 1, 1)}
	loaded, err := loadAll(store, tables[:2]...)
	qt.Assert(t, qt.IsNil(err))
	more, err := loadAll(store, tables[2:]...)
	qt.Assert(t, qt.IsNil(err))
	loaded = append(loaded, more...)
	for i, k := range loaded {
		assertHas(t, store, k, tables[i])
	}
	assertCounted(t, store, loaded...)

	rules := len(store.numbers)
	again, err := loadAll(store, tables[0])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(len(store.numbers), rules))
	assertHas(t, store, again[0], tables[0])
}

// Tables that do not fit are refused with an error and take no room. They fit once others
// are released.
func TestTablesFull(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	store := tableStore(t, 8)
	small, large := randomTable(r, 10, 20), &unwind.Table{Rules: []unwind.Rule{{}}, Index: []uint32{0}}
	for page := range 4 { // as many rows as possible: a chunk each, and one for the index
		for offset := range chunkWords {
			large.Rows = append(large.Rows, uint32(offset)<<16)
		}
		large.Index = append(large.Index, uint32((page+1)*chunkWords))
	}
	first, err := loadAll(store, large)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(first[0].chunks, 5))

	_, err = store.load(large, 0)
	qt.Assert(t, qt.IsTrue(errors.Is(err, errTablesFull)))
	assertCounted(t, store, first...)
	assertHas(t, store, first[0], large)

	// no longer used, but kept for the next process until the room is needed
	store.release(first[0])
	qt.Check(t, qt.IsFalse(first[0].gone))
	assertCounted(t, store, first...)
	second, err := loadAll(store, small, large)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(first[0].gone))
	qt.Check(t, qt.IsFalse(store.use(first[0])))
	assertCounted(t, store, second...)
	assertHas(t, store, second[0], small)
	assertHas(t, store, second[1], large)
}

// A store without room for rules returns an error.
func TestTablesOfTooManyRules(t *testing.T) {
	store := tableStore(t, 64)
	table := func(first int) *unwind.Table {
		u := &unwind.Table{Index: []uint32{0, 1}, Rows: []uint32{1}, Rules: []unwind.Rule{{}}}
		for i := range 40000 {
			u.Rules = append(u.Rules, unwind.Rule{CFA: unwind.SP, CFAOffset: int32(first + i)})
		}
		return u
	}
	first, err := loadAll(store, table(0))
	qt.Assert(t, qt.IsNil(err))
	_, err = loadAll(store, table(40000))
	qt.Assert(t, qt.IsTrue(errors.Is(err, errTablesFull)))
	assertCounted(t, store, first...)
	// tables with known rules still fit, and the failed load left nothing behind
	_, err = loadAll(store, table(0))
	qt.Check(t, qt.IsNil(err))
	few := table(40000)
	few.Rules = few.Rules[:10]
	more, err := loadAll(store, few)
	qt.Assert(t, qt.IsNil(err))
	assertHas(t, store, more[0], few)
}

// Of the unused tables, the most recently used are kept, up to a limit.
func TestIdleTablesAreKeptAndDropped(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	store := tableStore(t, maxIdleChunks+64)
	var tables []*unwind.Table
	for range maxIdleChunks/16 + 1 {
		u := randomTable(r, 1, 1)
		u.Index = slices.Repeat([]uint32{0}, 16*chunkWords) // 16 chunks of empty pages
		u.Rows = nil
		tables = append(tables, u)
	}
	loaded, err := loadAll(store, tables...)
	qt.Assert(t, qt.IsNil(err))
	for _, k := range loaded {
		qt.Assert(t, qt.Equals(k.chunks, 16))
		qt.Assert(t, qt.IsTrue(store.use(k)))
	}
	for _, k := range loaded {
		store.release(k)
	}
	assertCounted(t, store, loaded...) // each still has a user
	for _, k := range loaded {
		store.release(k)
	}
	qt.Check(t, qt.IsTrue(loaded[0].gone)) // the first one released
	assertCounted(t, store, loaded[1:]...)
	for _, k := range loaded[1:] {
		qt.Assert(t, qt.IsTrue(store.use(k)))
	}
	qt.Check(t, qt.HasLen(store.idle, 0))
}

// A user's tables take half of the chunks and a part of the rules: the room of others remains.
func TestTablesOfAUser(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	store := tableStore(t, 16)
	table := randomTable(r, 40, 500) // some chunks
	const hostile, other = 1000, 1001
	var loaded []*kernelTable
	for {
		k, err := store.load(table, hostile)
		if err != nil {
			qt.Assert(t, qt.ErrorIs(err, errShareFull))
			break
		}
		loaded = append(loaded, k)
	}
	qt.Check(t, qt.IsTrue(chunksOf(store) <= 8))
	_, err := store.load(table, other)
	qt.Check(t, qt.IsNil(err))
	// what is idle of the user's own makes room
	store.release(loaded[0])
	_, err = store.load(table, hostile)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(loaded[0].gone))

	rules := func(first int) *unwind.Table {
		table := &unwind.Table{Index: []uint32{0, 0}}
		for i := range maxUserRules {
			table.Rules = append(table.Rules, unwind.Rule{CFA: unwind.SP, CFAOffset: int32(first + i)})
		}
		return table
	}
	_, err = store.load(rules(1<<20), hostile)
	qt.Check(t, qt.ErrorIs(err, errShareFull)) // it had some before
	_, err = store.load(rules(1<<20), other+1)
	qt.Check(t, qt.IsNil(err))
	_, err = store.load(rules(1<<20), other+2) // the rules are known by now
	qt.Check(t, qt.IsNil(err))
}

// A table with as much code as PyTorch is loaded, released and dropped without waiting for the
// kernel at each chunk, which would take 20 s. Its chunks are reused.
func TestLargeTablesDoNotWaitForTheKernel(t *testing.T) {
	const chunks = 2200
	store := tableStore(t, chunks)
	large := &unwind.Table{Rules: []unwind.Rule{{}}, Index: []uint32{0}}
	for page := range chunks - 2 {
		for offset := range chunkWords {
			large.Rows = append(large.Rows, uint32(offset)<<16)
		}
		large.Index = append(large.Index, uint32((page+1)*chunkWords))
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	waits := func() int { // of this thread
		var u unix.Rusage
		qt.Assert(t, qt.IsNil(unix.Getrusage(unix.RUSAGE_THREAD, &u)))
		return int(u.Nvcsw)
	}
	for range 3 {
		before := waits()
		loaded, err := loadAll(store, large)
		qt.Assert(t, qt.IsNil(err))
		store.release(loaded[0])
		for range len(store.idle) {
			store.drop(0)
		}
		waited := waits() - before
		t.Logf("waited %d times", waited)
		qt.Check(t, qt.IsTrue(waited < chunks/4), qt.Commentf("%d times", waited))
		assertCounted(t, store)
	}
}

// chunksOf returns how many chunks are in use.
func chunksOf(tables *unwindTables) (n int) {
	for _, taken := range tables.taken {
		if taken {
			n++
		}
	}
	return n
}
