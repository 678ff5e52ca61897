package heap

import (
	"bytes"
	"encoding/binary"
	"maps"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// FuzzLive damages the memory of fakeWorld: each four bytes of the input are a word and what
// it becomes. Reading ends, and the buffers that it returns are plausible.
func FuzzLive(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 1, 3, 0, 4, 0x81})
	f.Add([]byte{5, 0, 32, 3, 6, 0, 2, 0x90, 8, 0, 16, 8})
	whole, _ := fakeWorld()
	pages := slices.Sorted(maps.Keys(whole.pages))
	known := []uint64{0, 1, ^uint64(0), worldMesh, worldChip, worldTracker, worldManager, worldAllocator, worldBanks,
		worldFreeList, worldBlocks, worldBuffers, worldRanges, fakeSetAt, fakeBuckets, fakeNodes, 1 << 47, worldBias + meshTable}
	f.Fuzz(func(t *testing.T, damage []byte) {
		w, s := fakeWorld()
		for d := range slices.Chunk(damage[:min(len(damage)&^3, 1<<10)], 4) {
			at := pages[int(d[0])%len(pages)]*fakePage + 8*(uint64(binary.BigEndian.Uint16(d[1:]))%(fakePage/8))
			value := known[int(d[3])%len(known)]
			if d[3] >= 0x80 {
				value = w.get(at) + 8*uint64(d[3]) - 0x600
			}
			w.put(at, value)
		}
		fuzztest.Bounded(t, len(pages)*fakePage, 500, func() {
			_, buffers, err := s.readAll(worldMesh, worldChip, worldChip+0x100)
			qt.Assert(t, qt.IsNil(err))
			for _, b := range buffers {
				qt.Assert(t, qt.IsTrue(b.SizeBytes > 0 && b.Allocator != 0 && int(b.Region) < event.BankedRegions))
			}
		})
	})
}

// FuzzProgram reads a program from a memory that is the input.
func FuzzProgram(f *testing.F) {
	const at = 0x10000
	fields := maps.Clone(madeUpFields)
	maps.Copy(fields, map[string]layout.Chain{
		"ProgramImpl.dfb_allocators_":                          {64},
		"ProgramImpl.local_dataflow_buffer_allocation_needed_": {25},
		"CircularBufferAllocator.next":                         {64},
		"CircularBufferAllocator.l1_regions":                   {32},
	})
	words := func(list ...uint64) (b []byte) {
		for _, w := range list {
			b = binary.LittleEndian.AppendUint64(b, w)
		}
		return b
	}
	f.Add(words(77, at+0x60, at+0x70, 0, 0, 0, 1000, 1400, at+0xa0, at+0xe0, at+0xe0, at+0xf0, // the program
		at+0x80, 0, 0, 0, // at 0x60: a circular buffer
		at+0xf0, at+0x110, 4096, 1<<32|0x19d60, // at 0x80
		0, 1, 7, 8, at+0xf0, at+0x100, 0, 0, // at 0xa0: an allocator of dataflow buffers
		at+0x80, 0, // at 0xe0
		1, 0x200, 7, 0x201)) // at 0xf0
	// a thousand allocators whose regions are all of this memory
	const size = 1 << 16
	f.Add(slices.Concat(words(0, 0, 0, 0, 0, 0, 0, 0, at+0x80, at+size, 0, 0, 0, 0, 0, 0),
		bytes.Repeat(words(0, 0, 1, 1, at, at+size, 0, 0), (size-0x80)/64)))
	f.Add(make([]byte, 0x100))
	f.Fuzz(func(t *testing.T, memory []byte) {
		m := newFakeMemory()
		for i, b := range slices.Collect(slices.Chunk(memory[:min(len(memory), 1<<16)], fakePage)) {
			m.pages[at/fakePage+uint64(i)] = append(b, make([]byte, fakePage-len(b))...)
		}
		fuzztest.Bounded(t, len(memory), 1000, func() {
			o := &objects{memory: &host.Bounded{Memory: m, Left: programBudget, Over: errTooMuch}, fields: fields}
			h := o.header(at)
			for _, s := range append(o.circularBuffers(h.cbs), o.dataflowBuffers(h)...) {
				for _, c := range s.Cores {
					qt.Check(t, qt.IsTrue(c.X0 <= c.X1 && c.Y0 <= c.Y1))
				}
			}
		})
	})
}
