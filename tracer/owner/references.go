package owner

import (
	"encoding/binary"
	"slices"

	"ttmem/symbolize/python"
)

// A stepKind is a kind of reference.
type stepKind uint8

const (
	moduleStep stepKind = iota // ref is the str of a module's name
	localStep                  // ref is the code object, and the number of a variable in the lowest 16 bits
	threadStep                 // ref says what of a thread
	attribute                  // ref is the str of the name
	slotStep                   // ref is the address of a C string
	item                       // ref is the index
	key                        // ref is the key
	keyItself                  // a key of a dict; ref is its index
	element                    // of a set
	field                      // ref is the offset in an object of a C type
	content                    // of a cell
	closure                    // ref is the index
	defaults                   // ref is the offset of the tuple or dict in a function
	boundSelf                  // of a method
	boundFunc                  // of a method
	frameOf                    // of a traceback or a generator
	cause                      // ref is the offset in an exception: its traceback, context, cause or arguments
	nextTrace                  // of a traceback
	garbage                    // in a list of the garbage collector
	cache                      // of functools.lru_cache: a dict
	result                     // of a call that functools.lru_cache keeps
	baseOf                     // of an array
	flat                       // of an array; ref is the index in its order
	callback                   // of a weak reference
)

// The costs of references that rather are a way to a thing than a part of it.
const (
	plain   = 1
	farther = 4
	far     = 12
)

// block is the number of items that are read at once, in words.
const block = 256

// references calls emit with the objects that an object refers to.
func (w *walk) references(object uint64, t *typ) {
	switch t.kind {
	case dict:
		w.dict(object, key)
	case list:
		w.list(object)
	case tuple:
		w.words(object+uint64(w.heap.TupleItems), w.word(object+16), item, plain)
	case set:
		w.set(object)
	case deque:
		w.deque(object)
	case function:
		w.function(object)
	case method:
		w.emit(w.word(object+24), step{boundSelf, 0}, farther)
		w.emit(w.word(object+16), step{boundFunc, 0}, farther)
	case cell:
		w.emit(w.word(object+16), step{content, 0}, plain)
	case generator:
		w.generator(object)
	case exception:
		for i := range uint64(4) { // the arguments, then the traceback, its context and its cause
			at := 24
			if i > 0 {
				at = int(w.heap.Traceback) + 8*int(i-1)
			}
			w.emit(w.word(object+uint64(at)), step{cause, uint64(at)}, farther)
		}
	case traceback:
		w.emit(w.word(object+16), step{nextTrace, 0}, plain)
		w.emit(w.word(object+24), step{frameOf, 0}, plain)
	case frame:
		at := object
		if w.heap.FrameOfObject != 0 {
			at = w.word(object + uint64(w.heap.FrameOfObject))
		}
		w.frame(at, plain)
	case class:
		w.dict(w.word(object+typeDict), attribute)
		return
	case builtin:
		w.emit(w.word(object+24), step{boundSelf, 0}, farther)
	case weak:
		w.emit(w.word(object+24), step{callback, 0}, far)
	case lruCache:
		w.lruCache(object, t)
	case lruElement:
		w.emit(w.word(object+48), step{result, 0}, plain)
	case simpleQueue:
		w.simpleQueue(object)
	case array:
		w.array(object)
	}
	w.attributes(object, t)
	for _, s := range t.slots {
		w.emit(w.word(object+s.offset), step{slotStep, s.name}, plain)
	}
	if t.fields {
		w.fields(object, t)
	}
}

// fields emits the words of an object of a C type that have no names.
func (w *walk) fields(object uint64, t *typ) {
	for at := uint64(objectHead); at+8 <= t.basicSize && !w.isOver(1); at += 8 {
		if at != t.weakOffset && at != uint64(t.dictOffset) && !slices.ContainsFunc(t.slots, func(s slot) bool { return s.offset == at }) {
			w.emit(w.word(object+at), step{field, at}, far)
		}
	}
	if n := w.word(object + 16); t.item == 8 && t.flags&collected != 0 && n < maxSize {
		w.words(object+t.basicSize, n, field, far)
	}
}

// words emits n pointers.
func (w *walk) words(from, n uint64, kind stepKind, cost uint8) {
	var b [8 * block]byte
	for i := uint64(0); i < n && !w.isOver(block); i += block {
		some := b[:8*min(block, n-i)]
		if !w.read(from+8*i, some) {
			return
		}
		for j := uint64(0); len(some) > 0; j, some = j+1, some[8:] {
			w.emit(binary.LittleEndian.Uint64(some), step{kind, i + j}, cost)
		}
	}
}

// A table of keys is the PyDictKeysObject of a dict or of the instances of a type.
type keys struct {
	entries, count uint64
	// size is that of an entry: a hash, if it has 24 bytes, a key and a value.
	size uint64
}

func (w *walk) keys(at uint64) (k keys, ok bool) {
	var b [40]byte
	if at == 0 || !w.read(at, b[:]) {
		return k, false
	}
	k.size = 24
	if w.runtime.Minor == 10 { // which has the number of slots, not its logarithm
		slots, width := binary.LittleEndian.Uint64(b[8:]), uint64(8)
		switch {
		case slots <= 0xff:
			width = 1
		case slots <= 0xffff:
			width = 2
		case slots <= 0xffffffff:
			width = 4
		}
		k.count, k.entries = binary.LittleEndian.Uint64(b[32:]), at+40+slots*width
		return k, k.count <= slots && slots < 1<<maxLogarithm
	}
	if b[10] != 0 {
		k.size = 16
	}
	k.count, k.entries = binary.LittleEndian.Uint64(b[24:]), at+32+1<<(b[9]&63)
	return k, b[9] < maxLogarithm && k.count < 1<<maxLogarithm
}

// maxLogarithm is above that of the slots of any dict.
const maxLogarithm = 40

// each calls f with the keys and values of a table, and their numbers.
func (w *walk) each(k keys, f func(i, key, value uint64)) {
	var b [24 * 64]byte
	for i := uint64(0); i < k.count && !w.isOver(64); {
		n := min(64, k.count-i)
		some := b[:k.size*n]
		if !w.read(k.entries+i*k.size, some) {
			return
		}
		for ; len(some) > 0; some = some[k.size:] {
			f(i, binary.LittleEndian.Uint64(some[k.size-16:]), binary.LittleEndian.Uint64(some[k.size-8:]))
			i++
		}
	}
}

const (
	// tries is how often a container is read that changes meanwhile.
	tries = 4
	// manyItems are worth a look at whether a list or set changed.
	manyItems = 16
)

// list emits the items of a list.
func (w *walk) list(object uint64) {
	for range tries {
		n, items := w.word(object+16), w.word(object+24)
		w.words(items, n, item, plain)
		if n < manyItems || w.isStill(object+16, n, items) {
			return
		}
		w.forgetAt(object+16, 16)
		w.forgetAt(w.word(object+24), 8*w.word(object+16))
	}
}

// dict emits the values of a dict, and the keys that are no str.
func (w *walk) dict(object uint64, kind stepKind) {
	for range tries {
		if object == 0 || w.readDict(object, kind) {
			return
		}
		w.forgetAt(object+16, 32)
		at := w.word(object + 32)
		w.forgetAt(at, 40)
		if k, ok := w.keys(at); ok {
			w.forgetAt(k.entries, k.count*k.size)
		}
	}
}

// readDict emits as dict does. It reports whether there are as many values as the dict says: what
// was read earlier may be of another moment than the rest. Then it emits no keys: with the form of another
// table, values look like keys.
func (w *walk) readDict(object uint64, kind stepKind) bool {
	used, values := w.word(object+16), w.word(object+40)
	k, ok := w.keys(w.word(object + 32))
	if !ok {
		return false
	}
	if values != 0 && w.heap.Attributes == python.ValuesInline {
		values += 8
	}
	w.each(k, func(i, name, value uint64) {
		if name == 0 {
			return
		}
		if values != 0 {
			value = w.word(values + 8*i)
		}
		if value != 0 {
			used--
		}
		w.emit(value, step{kind, name}, plain)
	})
	if used != 0 {
		return false
	}
	if kind == key && k.size == 24 { // in other tables, all keys are str
		w.each(k, func(i, name, _ uint64) { w.emit(name, step{keyItself, i}, far) })
	}
	return true
}

// maxCount is above the items of any object of variable size.
const maxCount = 1 << 40

// attributes emits the attributes of an instance that are not in slots.
func (w *walk) attributes(object uint64, t *typ) {
	if t.flags&managedDict == 0 || w.heap.Attributes == python.NoAttributes {
		at := t.dictOffset
		if at < 0 { // from the end of an object of variable size
			n := int64(w.word(object + 16))
			if n < -maxCount || n > maxCount {
				return
			}
			size := int64(t.basicSize) + max(n, -n)*int64(t.item)
			at += (size + 7) / 8 * 8
		}
		if at > 0 {
			w.dict(w.word(object+uint64(at)), attribute)
		}
		return
	}
	kept, values := w.word(object-24), uint64(0)
	switch w.heap.Attributes {
	case python.ValuesBefore:
		values = w.word(object - 32)
	case python.ValuesOrDict:
		if kept&1 != 0 {
			kept, values = 0, kept+1
		}
	case python.ValuesInline:
		if inside := object + t.basicSize; kept == 0 && t.flags&inlineValues != 0 && w.byte(inside+3) == 1 {
			values = inside + 8
		}
	}
	if kept != 0 {
		w.dict(kept, attribute)
		return
	}
	if values == 0 {
		return
	}
	k, ok := w.keys(w.word(w.word(object+8) + uint64(w.heap.CachedKeys)))
	if ok {
		w.each(k, func(i, name, _ uint64) { w.emit(w.word(values+8*i), step{attribute, name}, plain) })
	}
}

// set emits the elements of a set.
func (w *walk) set(object uint64) {
	for range tries {
		mask, at := w.word(object+32), w.word(object+40)
		if mask >= 1<<maxLogarithm || mask&(mask+1) != 0 {
			return
		}
		var b [16 * 8]byte // the smallest table
		for i := uint64(0); i <= mask && !w.isOver(8) && w.read(at+16*i, b[:]); i += 8 {
			for j := range uint64(8) {
				w.emit(binary.LittleEndian.Uint64(b[16*j:]), step{element, i + j}, plain)
			}
		}
		if mask < manyItems || w.isStill(object+32, mask, at) {
			return
		}
		w.forgetAt(object+32, 16)
		w.forgetAt(w.word(object+40), 16*w.word(object+32))
	}
}

// deque emits the items of a collections.deque: blocks of 64 items, linked in both directions.
func (w *walk) deque(object uint64) {
	const perBlock = 64
	n, at, from := w.word(object+16), w.word(object+24), w.word(object+40)
	for i := uint64(0); i < n && at != 0 && from < perBlock && !w.isOver(1); i++ {
		w.emit(w.word(at+8+8*from), step{item, i}, plain)
		if from++; from == perBlock {
			at, from = w.word(at+8+8*perBlock), 0
		}
	}
}

// lruCache emits what a function with functools.lru_cache holds. The elements of its dict are linked to it.
func (w *walk) lruCache(object uint64, t *typ) {
	for at := uint64(objectHead); at+8 <= t.basicSize; at += 8 {
		to := w.word(object + at)
		of := w.typeOf(w.word(to + 8))
		switch {
		case of == nil || of.kind == lruElement || at == t.weakOffset || at == uint64(t.dictOffset):
		case of.kind == dict:
			w.emit(to, step{cache, 0}, plain)
		default:
			w.emit(to, step{field, at}, far)
		}
	}
}

// simpleQueue emits the items of a queue.SimpleQueue: a list or, from 3.13 on, a ring of pointers.
func (w *walk) simpleQueue(object uint64) {
	if w.runtime.Minor < 13 {
		w.emit(w.word(object+32), step{field, 32}, far)
		return
	}
	next, items, room, n := w.word(object+32), w.word(object+40), w.word(object+48), w.word(object+56)
	for i := uint64(0); i < n && n <= room && next < room && !w.isOver(1); i++ {
		w.emit(w.word(items+8*((next+i)%room)), step{element, i}, plain)
	}
}

// array emits the items of a numpy array of objects, in the order of array.flat, and what has the memory
// of another one.
func (w *walk) array(object uint64) {
	const maxDimensions, objectType = 64, 17
	data, dimensions, strides, base, of := w.word(object+16), w.word(object+32), w.word(object+40), w.word(object+48), w.word(object+56)
	w.emit(base, step{baseOf, 0}, farther)
	if uint32(w.word(of+28)) != objectType {
		return
	}
	rank := uint64(uint32(w.word(object + 24)))
	if rank > maxDimensions {
		return
	}
	shape, stride, index := make([]uint64, rank), make([]uint64, rank), make([]uint64, rank)
	kind, n := item, uint64(1)
	if rank != 1 {
		kind = flat
	}
	for i := range shape {
		shape[i], stride[i] = w.word(dimensions+8*uint64(i)), w.word(strides+8*uint64(i))
		if n *= shape[i]; shape[i] >= maxCount || n >= maxCount {
			return
		}
	}
	for i := uint64(0); i < n && !w.isOver(1); i++ {
		w.emit(w.word(data), step{kind, i}, plain)
		for d := len(index) - 1; d >= 0; d-- { // the last dimension changes first
			index[d]++
			data += stride[d]
			if index[d] < shape[d] {
				break
			}
			data -= index[d] * stride[d]
			index[d] = 0
		}
	}
}

// function emits what a function holds, except for its module.
func (w *walk) function(object uint64) {
	if cells := w.word(object + 72); cells != 0 {
		w.words(cells+uint64(w.heap.TupleItems), w.word(cells+16), closure, farther)
	}
	for _, at := range []uint64{56, 64} {
		w.emit(w.word(object+at), step{defaults, at}, farther)
	}
}

// generator emits the variables of a generator or coroutine that is not over.
func (w *walk) generator(object uint64) {
	if w.heap.GeneratorState == 0 {
		w.emit(w.word(object+uint64(w.heap.GeneratorFrame)), step{frameOf, 0}, plain)
		return
	}
	if int8(w.byte(object+uint64(w.heap.GeneratorState))) <= 0 {
		w.frame(object+uint64(w.heap.GeneratorFrame), plain)
	}
}

// frame emits the variables of a frame.
func (w *walk) frame(at uint64, cost uint8) {
	if at == 0 {
		return
	}
	code := w.word(at+uint64(w.runtime.Offsets.FrameCode)) &^ 3
	if code == 0 || w.word(code+8) != w.Bias+w.runtime.CodeType {
		return
	}
	local := at + uint64(w.heap.Locals)
	for i := range w.locals(code) {
		w.emit(w.word(local+8*i)&^1, step{localStep, code<<16 | i}, cost)
	}
	w.emit(w.word(at+uint64(w.heap.FrameMapping)), step{localStep, code<<16 | mapping}, cost)
}

// mapping stands for the dict of a frame instead of the number of a variable.
const mapping = 1<<16 - 1

// locals returns how many variables a code object has.
func (w *walk) locals(code uint64) (n uint64) {
	for _, names := range w.heap.LocalNames {
		n += min(w.word(w.word(code+uint64(names))+16), mapping)
	}
	if n >= mapping {
		w.cut(tooMany{mapping, "variables of one function"})
	}
	return min(n, mapping-1)
}

// local returns the name of a variable.
func (w *walk) local(code, i uint64) string {
	for _, names := range w.heap.LocalNames {
		tuple := w.word(code + uint64(names))
		n := w.word(tuple + 16)
		if i < n {
			name, _ := w.str(w.word(tuple + uint64(w.heap.TupleItems) + 8*i))
			return name
		}
		i -= n
	}
	return ""
}
