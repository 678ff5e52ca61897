package owner

import (
	"slices"
	"strings"

	"ttmem/tracer/event"
	"ttmem/tracer/internal/heap"
)

// This file finds Buffers that objects of C++ hold. Where the objects have their pointers differs
// from release to release, so all words that lead to the begin of a block of malloc are followed, no
// further than to its end. What counts is a std::shared_ptr to a MeshBuffer.

const (
	// maxDepth, maxBlock and maxBlocks bound the pointers that are followed one after another, the
	// bytes of a block, and the blocks.
	maxDepth  = 6
	maxBlock  = 4 << 10
	maxBlocks = 1 << 19
	// maxPrograms bounds the entries of a program cache.
	maxPrograms = 1 << 20
	// nativeBytes is how much is read for the objects of the library, each time.
	nativeBytes = 1 << 30
)

// strangers are the virtual tables of objects that are referenced but not owned: a search stops there. A program has
// memory that was never written, which may contain old pointers.
var strangers = []string{
	"_ZTVN2tt8tt_metal6DeviceE", "_ZTVN2tt8tt_metal11distributed10MeshDeviceE", "_ZTVN2tt8tt_metal11distributed14MeshDeviceImplE",
	"_ZTVN2tt8tt_metal11distributed18FDMeshCommandQueueE", "_ZTVN2tt8tt_metal11distributed18SDMeshCommandQueueE",
	"_ZTVN2tt8tt_metal11distributed21DummyMeshCommandQueueE",
	programTable,
}

const programTable = "_ZTVSt23_Sp_counted_ptr_inplaceIN2tt8tt_metal6detail11ProgramImplESaIvELN9__gnu_cxx12_Lock_policyE2EE"

// natives are the objects of the library in a process.
type natives struct {
	*Tensors
	wanted map[uint64]bool // Buffers
	// strangers are the addresses of the virtual tables at which a search stops.
	strangers []uint64
	// missed is why not all Buffers of program caches are known.
	missed error
}

func newNatives(tensors *Tensors, wanted map[uint64]bool) *natives {
	n := &natives{Tensors: tensors, wanted: wanted}
	for _, name := range strangers {
		if at := n.table(name); at != 0 {
			n.strangers = append(n.strangers, at)
		}
	}
	return n
}

// table returns what the first word of an object with a virtual table is; 0 if there is none.
func (n *natives) table(name string) uint64 {
	const head = 16
	if at := n.Machine.Function(name); at != 0 {
		return at + head
	}
	return 0
}

// block returns the size of the block of malloc that begins at an address; 0 if none does.
func (n *natives) block(at uint64) uint64 {
	// glibc's flags in the size before a block, which includes 8 bytes of the next one
	const previousInUse, mapped, flags, smallest, largest = 1, 2, 7, 32, 64 << 20
	if at%16 != 0 || !isPointer(at) {
		return 0
	}
	head := n.words(at-8, 1)
	if head == nil || head[0]&mapped != 0 {
		return 0
	}
	size := head[0] &^ flags
	if size < smallest || size%16 != 0 || size > largest {
		return 0
	}
	next := n.words(at-8+size, 1)
	if next == nil || next[0]&previousInUse == 0 || next[0]&^flags < smallest/2 {
		return 0
	}
	return size - 8
}

// A chase follows pointers.
type chase struct {
	*natives
	seen  map[uint64]bool // blocks
	found []found
}

// A found Buffer. binaries is true if a program has it for the binaries of its kernels.
type found struct {
	buffer   uint64
	binaries bool
}

// A part of memory was reached by some pointers.
type part struct {
	at, size uint64
	depth    int
}

// chase returns the Buffers that objects hold. It follows up to most objects, and reports whether these
// were all.
func (n *natives) chase(most int, parts ...part) (buffers []found, all bool) {
	c := &chase{natives: n, seen: make(map[uint64]bool)}
	for _, p := range parts {
		c.seen[p.at] = true
	}
	for i := 0; i < len(parts); i++ {
		if len(c.seen) >= most {
			return c.found, false
		}
		p := parts[i]
		words := c.words(p.at, min(p.size, maxBlock)/8)
		for j, word := range words {
			buffer, shared := c.shared(words[j:])
			switch {
			case !isPointer(word):
			case shared:
				c.found = append(c.found, found{buffer, p.depth <= 1 && isMap(words[:j])})
			case p.depth < maxDepth && !c.seen[word]:
				if size := c.block(word); size > 0 && !c.isStranger(word) {
					c.seen[word] = true
					parts = append(parts, part{word, usedOf(words[j:], size), p.depth + 1})
				}
			}
		}
	}
	return c.found, true
}

// usedOf returns how much of the block is used to which the first word leads. A std::vector has
// begin, end and the end of its memory.
func usedOf(words []uint64, block uint64) uint64 {
	if len(words) >= 3 && words[0] <= words[1] && words[1] <= words[2] && words[2]-words[0] <= block {
		return words[1] - words[0]
	}
	return block
}

func (n *natives) isStranger(at uint64) bool {
	first := n.words(at, 1)
	return first == nil || slices.Contains(n.strangers, first[0])
}

// shared returns the Buffer of a MeshBuffer to which two words are a std::shared_ptr.
func (n *natives) shared(words []uint64) (buffer uint64, ok bool) {
	if !n.isShared(words) {
		return 0, false
	}
	buffer, err := n.backing(words[0])
	return buffer, err == nil && n.wanted[buffer]
}

// isTrace reports whether a Buffer is in the region of captured traces.
func (n *natives) isTrace(buffer uint64) bool {
	const trace = 4
	if is, err := n.call(buffer, "_ZNK2tt8tt_metal6Buffer8is_traceEv"); err == nil {
		return uint8(is) == 1
	}
	of, err := n.call(buffer, "_ZNK2tt8tt_metal6Buffer11buffer_typeEv")
	return err == nil && uint32(of) == trace
}

// isMap reports whether the last words are a std::unordered_map that is not empty: a program has one, of
// the state of its binaries on each mesh, right before the shared_ptr to their buffer, and no other
// object of the cache has such a neighbour.
func isMap(words []uint64) bool {
	begin := len(words) - heap.TableWords
	if begin < 0 {
		return false
	}
	t, ok := heap.TableOf(words[begin:])
	return ok && isPointer(t.Buckets) && isPointer(t.First) && t.Size > 0
}

// devices returns the MeshDevices of Buffers.
func (n *natives) devices(buffers []uint64) (list []uint64) {
	if n.table(programTable) == 0 {
		return nil
	}
	seen := map[uint64]bool{0: true}
	for _, buffer := range buffers {
		if device := n.device(buffer); !seen[device] {
			seen[device] = true
			list = append(list, device)
		}
	}
	return list
}

// cached returns the wanted Buffers that the program caches of devices hold, with the path of their Holder.
func (n *natives) cached(devices []uint64) map[uint64]string {
	paths := make(map[uint64]string)
	var parts []part
	for _, device := range devices {
		parts = append(parts, n.programs(device)...)
	}
	list, all := n.chase(maxBlocks, parts...)
	for _, f := range list {
		if f.binaries {
			paths[f.buffer] = event.OwnerBinaries
		} else if paths[f.buffer] == "" {
			paths[f.buffer] = event.OwnerProgramCache
		}
	}
	if !all {
		n.missed = tooMany{maxBlocks, "objects of cached programs"}
	}
	return paths
}

// device returns the MeshDevice of a Buffer; 0 if it has none. One of the Buffer's first words, or
// of the object with its fields, leads there.
func (n *natives) device(buffer uint64) uint64 {
	const first = 8
	mesh := n.table("_ZTVN2tt8tt_metal11distributed10MeshDeviceE")
	if mesh == 0 {
		return 0
	}
	for depth, at := 0, []uint64{buffer}; depth < 2; depth++ {
		var next []uint64
		for _, object := range at {
			for _, word := range n.words(object, first) {
				if table := n.words(word, 1); table != nil && table[0] == mesh {
					return word
				}
				next = append(next, word)
			}
		}
		at = next
	}
	return 0
}

// programs returns the entries of a device's program cache: the nodes of a std::unordered_map.
func (n *natives) programs(device uint64) (list []part) {
	// The map is in the first fields words. used is how much of an entry counts: it begins with a
	// workload and a map of what belongs to it, in a place for any type.
	const fields, used = 13, 256
	size, err := n.call(device, "_ZN2tt8tt_metal11distributed10MeshDevice25num_program_cache_entriesEv")
	if err == nil && size > maxPrograms {
		n.missed = tooMany{maxPrograms, "cached programs"}
	}
	if err != nil || size == 0 || size > maxPrograms {
		return nil
	}
	cache, err := n.call(device, "_ZN2tt8tt_metal11distributed10MeshDevice17get_program_cacheEv")
	if err != nil {
		return nil
	}
	for words := n.words(cache, fields); len(words) > 0; words = words[1:] {
		table, ok := heap.TableOf(words)
		if !ok || table.Size != size {
			continue
		}
		for at := table.First; uint64(len(list)) < size; {
			next := n.words(at, 1)
			if next == nil {
				break // it changes
			}
			list = append(list, part{at: at, size: min(n.block(at), used)})
			at = next[0]
		}
		break
	}
	return list
}

// isGlobal reports whether a type is that of ttnn's global semaphores or circular buffers.
func isGlobal(name string) bool {
	return strings.HasSuffix(name, "global_semaphore") || strings.HasSuffix(name, "global_circular_buffer")
}

// held returns the Buffers that a Python object holds.
func (n *natives) held(instance uint64) []uint64 {
	if isTensor(n.typeName(instance)) {
		if buffer, err := n.Buffer(instance); err == nil && n.wanted[buffer] {
			return []uint64{buffer}
		}
		return nil
	}
	object, err := n.of(instance)
	head := n.words(instance, 2)
	if err != nil || head == nil {
		return nil
	}
	size := n.block(object)
	if of := n.words(head[1]+typeBasicSize, 1); of != nil && object >= instance && object-instance < of[0] {
		size = instance + of[0] - object // the object is a part of the instance
	}
	// how far the Buffers of a global circular buffer are away
	const depth, blocks = 3, 64
	list, _ := n.chase(blocks, part{object, size, maxDepth - depth})
	buffers := make([]uint64, len(list))
	for i := range list {
		buffers[i] = list[i].buffer
	}
	return buffers
}

// stillHeld reports whether a Python object holds a Buffer, and returns the tensor if it is one.
func (n *natives) stillHeld(instance, buffer uint64) (t Tensor, still bool) {
	if !isTensor(n.typeName(instance)) {
		return t, slices.Contains(n.held(instance), buffer)
	}
	t, err := n.Tensors.Read(instance)
	return t, err == nil && t.Buffer == buffer
}

// typeName returns the name of the type of a Python object.
func (n *natives) typeName(object uint64) string {
	return n.cString(n.word(n.word(object+8) + typeName))
}
