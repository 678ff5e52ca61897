package owner

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/symbolize/python"
	"ttmem/tracer/host"
)

// An image is the memory of a made-up interpreter, from imageStart on.
type image struct {
	b       []byte
	minor   int
	heap    python.Heap
	types   map[string]uint64
	runtime python.Runtime
}

const imageStart = 1 << 20

func (m *image) Read(pieces []host.Piece) error {
	for i := range pieces {
		p := &pieces[i]
		if p.OK = p.Address >= imageStart && p.Address-imageStart < uint64(len(m.b)); p.OK {
			p.OK = copy(p.Data, m.b[p.Address-imageStart:]) == len(p.Data)
		}
	}
	return nil
}

// alloc returns the address of n bytes, which begin with these words.
func (m *image) alloc(n int, words ...uint64) uint64 {
	at := imageStart + uint64(len(m.b))
	m.b = append(m.b, make([]byte, (n+15)/16*16)...)
	m.put(at, words...)
	return at
}

func (m *image) put(at uint64, words ...uint64) {
	for i, word := range words {
		binary.LittleEndian.PutUint64(m.b[at-imageStart+8*uint64(i):], word)
	}
}

// object returns an object of a type, with n bytes after its head, which begin with these words.
func (m *image) object(name string, n int, words ...uint64) uint64 {
	return m.alloc(16+n, append([]uint64{1, m.types[name]}, words...)...)
}

func (m *image) text(s string) uint64 {
	at := m.alloc(len(s) + 1)
	copy(m.b[at-imageStart:], s)
	return at
}

func (m *image) addType(name string, flags uint64, size, dictOffset uint64) {
	at := m.alloc(1024, 1, m.types["type"])
	m.put(at+typeName, m.text(name), size)
	m.put(at+typeFlags, flags|ready)
	m.put(at+typeDictOffset, dictOffset)
	m.types[name] = at
	if name == "type" {
		m.put(at+8, at)
	}
}

func (m *image) str(s string) uint64 {
	const compactASCII = 1<<2 | stateBits
	at := m.object("str", 32+len(s)+1, uint64(len(s)), 0, compactASCII)
	copy(m.b[at-imageStart+uint64(m.runtime.Offsets.StrASCII):], s)
	return at
}

const stateBits = 1<<5 | 1<<6

// dict returns a dict of keys and values.
func (m *image) dict(pairs ...uint64) uint64 {
	count := uint64(len(pairs) / 2)
	keys := m.alloc(256+24*int(count), 1)
	entries := keys + 40 + 8
	if m.runtime.Minor == 10 {
		m.put(keys+8, 8, 0, 0, count)
	} else {
		m.put(keys+8, 3<<8) // indices of 8 bytes, entries with a hash
		m.put(keys+24, count)
		entries = keys + 32 + 8
	}
	for i := range count {
		m.put(entries+24*i, 0, pairs[2*i], pairs[2*i+1])
	}
	return m.object("dict", 32, count, 0, keys)
}

func (m *image) tuple(items ...uint64) uint64 {
	at := m.object("tuple", 24+8*len(items), uint64(len(items)))
	m.put(at+uint64(m.heap.TupleItems), items...)
	return at
}

func (m *image) list(items ...uint64) uint64 {
	return m.object("list", 24, uint64(len(items)), m.alloc(8*len(items), items...))
}

// newImage returns the memory of an interpreter of a version, and the objects of type Target in it
// by the paths to them.
func newImage(minor int) (*image, map[string]uint64) {
	m := &image{minor: minor, types: make(map[string]uint64)}
	m.heap = python.HeapOf(minor)
	if minor >= 13 { // whose file has these
		m.heap.Interpreter, m.heap.Threads, m.heap.Modules, m.heap.Generations, m.heap.NextThread = 640, 7344, 7656, 7424, 8
		m.heap.Locals, m.heap.LocalNames, m.heap.TupleItems = 72, []uint32{96}, 24
	}
	if minor == 14 {
		m.heap.Interpreter, m.heap.Modules, m.heap.Locals, m.heap.TupleItems = 816, 7664, 80, 32
	}
	m.runtime = python.Runtime{Minor: minor, Heap: m.heap, Offsets: python.Offsets{
		ThreadFrame: 72, FrameCode: 0, FramePrevious: 8, CodeName: 120, StrASCII: 48, StrOther: 72,
	}}
	for _, t := range []struct {
		name             string
		flags            uint64
		size, dictOffset uint64
	}{
		{"type", typeSubclass | collected, 800, 0}, {"str", strSubclass, 48, 0}, {"dict", dictSubclass | collected, 48, 0},
		{"list", listSubclass | collected, 40, 0}, {"tuple", tupleSubclass | collected, 24, 0}, {"module", collected, 56, 16},
		{"code", 0, 200, 0}, {"Target", 0, 24, 0}, {"Node", collected, 24, 16},
	} {
		m.addType(t.name, t.flags, t.size, t.dictOffset)
	}
	m.runtime.CodeType = m.types["code"]
	targets := make(map[string]uint64)
	target := func(path string) uint64 {
		targets[path] = m.object("Target", 8)
		return targets[path]
	}
	node := m.object("Node", 8, m.dict(m.str("weight"), target("model.weight")))
	loop := m.list(0, target("loop[1]"))
	m.put(m.b64(loop+24), loop)
	main := m.dict(
		m.str("x"), target("x"), m.str("model"), node, m.str("loop"), loop,
		m.str("cache"), m.dict(m.str("k"), m.tuple(target("cache['k'][0]"), m.list(target("cache['k'][1][0]")))),
	)
	empty := m.dict(m.str("__name__"), m.str("sys"))
	modules := m.dict(
		m.str("sys"), m.object("module", 40, empty), m.str("builtins"), m.object("module", 40, empty),
		m.str("__main__"), m.object("module", 40, main),
	)
	code := m.object("code", 256)
	m.put(code+120, m.str("forward"))
	for _, names := range m.heap.LocalNames {
		m.put(code+uint64(names), m.tuple())
	}
	m.put(code+uint64(m.heap.LocalNames[0]), m.tuple(m.str("hidden")))
	frame := m.alloc(512, code)
	m.put(frame+uint64(m.heap.Locals), target("local hidden of forward()"))
	interpreter := m.alloc(1 << 13)
	thread := m.alloc(512, 0, 0, interpreter)
	m.put(thread+72, frame)
	m.put(interpreter+uint64(m.heap.Threads), thread)
	m.put(interpreter+uint64(m.heap.Modules), modules)
	for i := range uint64(generations) {
		head := interpreter + uint64(m.heap.Generations) + 24*i
		m.put(head, head, head)
	}
	m.runtime.Runtime = m.alloc(1024)
	m.put(m.runtime.Runtime+uint64(m.heap.Interpreter), interpreter)
	m.alloc(pageSize - len(m.b)%pageSize) // whole pages can be read
	return m, targets
}

func (m *image) b64(at uint64) uint64 { return binary.LittleEndian.Uint64(m.b[at-imageStart:]) }

// find searches in the image, through pages that are used again.
func (m *image) find(pages *pages, enough func(uint64) bool) ([]Owned, Cost, error) {
	pages.forget()
	pages.Memory, pages.err = m, nil
	h := &Heap{
		memory: pages, Runtime: &m.runtime,
		Symbols: func(name string) (uint64, bool) {
			if name == "PyModule_Type" {
				return m.types["module"], true
			}
			return 0, false
		},
		IsTarget: func(name, _ string) bool { return name == "Target" },
		User:     func(_, _ string) bool { return false },
	}
	return h.Find(Limits{Objects: 1 << 12, Bytes: 8 << 20, Time: time.Second}, enough)
}

func TestAMadeUpHeap(t *testing.T) {
	pages := newPages(nil)
	for minor := 10; minor <= 14; minor++ {
		m, targets := newImage(minor)
		found, _, err := m.find(pages, all)
		qt.Check(t, qt.IsNil(err))
		paths := make(map[string]uint64)
		for _, o := range found {
			paths[o.Path.String()] = o.Object
		}
		qt.Check(t, qt.DeepEquals(paths, targets), qt.Commentf("3.%d", minor))
	}
}

// TestANameThatIsSeenLater: an object that was only in the collector's list when all was read has the name
// that a later look sees.
func TestANameThatIsSeenLater(t *testing.T) {
	pages := newPages(nil)
	for minor := 10; minor <= 14; minor++ {
		for _, named := range []bool{false, true} {
			m, targets := newImage(minor)
			interpreter := m.b64(m.runtime.Runtime + uint64(m.heap.Interpreter))
			head := interpreter + uint64(m.heap.Generations)
			link := m.alloc(pageSize, head, head, 1, m.types["Target"])
			m.put(head, link, link)
			object := link + 16
			found, _, err := m.find(pages, func(seen uint64) bool {
				for at := uint64(imageStart); named && seen == object && at < imageStart+uint64(len(m.b)); at += 8 {
					if m.b64(at) == targets["x"] {
						m.put(at, object)
					}
				}
				return false
			})
			qt.Check(t, qt.IsNil(err))
			path := ""
			for _, o := range found {
				if o.Object == object {
					path = o.Path.String()
				}
			}
			qt.Check(t, qt.Equals(path, map[bool]string{false: "a Target without a name", true: "x"}[named]), qt.Commentf("3.%d", minor))
		}
	}
}

// FuzzHeap: words of a heap have other values. The search ends, in bounded memory, and what it
// names are objects to which others refer.
func FuzzHeap(f *testing.F) {
	f.Add([]byte{2})
	f.Add([]byte{0, 1, 2, 3, 0, 0, 16, 0, 0, 0, 0, 0})
	f.Add([]byte{4, 80, 1, 255, 255, 255, 255, 255, 255, 255, 255, 200, 2, 0, 0, 17, 0, 0, 0, 0, 0})
	pages := newPages(nil)
	f.Fuzz(func(t *testing.T, changes []byte) {
		if len(changes) == 0 {
			return
		}
		m, _ := newImage(10 + int(changes[0])%5)
		for b := changes[1:]; len(b) >= 10; b = b[10:] {
			at := uint64(binary.LittleEndian.Uint16(b)) * 8 % uint64(len(m.b))
			m.put(imageStart+at, binary.LittleEndian.Uint64(b[2:]))
		}
		fuzztest.Bounded(t, len(changes), 0, func() {
			found, _, _ := m.find(pages, all)
			references := make(map[uint64]bool)
			for at := uint64(imageStart); len(found) > 0 && at < imageStart+uint64(len(m.b)); at += 8 {
				references[m.b64(at)] = true
			}
			for _, o := range found {
				for _, s := range o.Path {
					if s.Kind != "garbage" && s.Kind != "rest" && !references[s.Object] && !references[s.Object|1] {
						t.Fatalf("nothing refers to %#x: %s", s.Object, o.Path)
					}
				}
				if text := o.Path.String(); len(text) > maxText+len("…") {
					t.Fatalf("a path of %d bytes", len(text))
				}
				if o.Object < imageStart || o.Object >= imageStart+uint64(len(m.b)) {
					t.Fatalf("no object at %#x: %s", o.Object, o.Path)
				}
			}
		})
	})
}
