package owner

import (
	"encoding/binary"

	"ttmem/symbolize/python"
)

// A kind says how an object refers to others.
type kind uint8

const (
	// atom refers to nothing that matters.
	atom kind = iota
	// instance has attributes, slots and, if its type is made in C, fields without names.
	instance
	dict
	list
	tuple
	set
	module
	function
	method
	cell
	generator
	exception
	traceback
	frame
	class
	deque
	builtin
	weak
	lruCache
	lruElement
	simpleQueue
	array
)

// named are types whose addresses the interpreter does not export, and their kinds, by their names.
var named = map[string]kind{
	"collections.deque": deque, "functools._lru_cache_wrapper": lruCache, "functools._lru_list_elem": lruElement,
	"_queue.SimpleQueue": simpleQueue, "numpy.ndarray": array,
	"_thread._localdummy": atom, // others hold that to which it refers
	// of which a process may have millions
	"numpy.generic": atom, "datetime.date": atom, "datetime.time": atom, "datetime.timedelta": atom, "decimal.Decimal": atom,
}

// exported are the types whose addresses the interpreter exports, and their kinds.
var exported = map[string]kind{
	"PySet_Type": set, "PyFrozenSet_Type": set, "PyModule_Type": module, "PyFunction_Type": function,
	"PyMethod_Type": method, "PyCell_Type": cell, "PyGen_Type": generator, "PyCoro_Type": generator,
	"PyAsyncGen_Type": generator, "PyTraceBack_Type": traceback, "PyFrame_Type": frame,
	"PyCode_Type": atom, "PyFloat_Type": atom, "PyCFunction_Type": builtin, "PyMethodDescr_Type": atom,
	"PyWrapperDescr_Type": atom, "PyMemberDescr_Type": atom, "PyGetSetDescr_Type": atom, "PyByteArray_Type": atom,
	// whose field is what was looked up last
	"PyContextVar_Type": atom,
	"PyEllipsis_Type":   atom, "PyComplex_Type": atom, "PyCapsule_Type": atom,
	// which hold their callbacks only
	"_PyWeakref_RefType": weak, "_PyWeakref_ProxyType": weak, "_PyWeakref_CallableProxyType": weak,
}

// flags of types (Include/object.h)
const (
	inlineValues  = 1 << 2
	managedDict   = 1 << 4
	ready         = 1 << 12
	collected     = 1 << 14
	longSubclass  = 1 << 24
	listSubclass  = 1 << 25
	tupleSubclass = 1 << 26
	bytesSubclass = 1 << 27
	strSubclass   = 1 << 28
	dictSubclass  = 1 << 29
	exceptionType = 1 << 30
	typeSubclass  = 1 << 31
)

// Offsets in PyTypeObject, the same from 3.10 to 3.14.
const (
	typeName       = 24
	typeBasicSize  = 32
	typeItemSize   = 40
	typeFlags      = 168
	typeMembers    = 240
	typeBase       = 256
	typeDict       = 264
	typeWeakOffset = 208
	typeDictOffset = 288
	typeSize       = 296
	// objectHead is the count of references and the type of every object.
	objectHead = 16
)

// A slot is an attribute at a fixed place in the instances.
type slot struct{ name, offset uint64 }

// A typ is a type of objects.
type typ struct {
	name            string
	kind            kind
	flags           uint64
	basicSize, item uint64
	dictOffset      int64
	weakOffset      uint64
	slots           []slot
	// fields is true if words of its instances may be fields without names: its structure is made
	// in C.
	fields bool
	// target is true if its instances are searched.
	target bool
	// number is its place in the list of types.
	number uint16
}

const (
	// maxTypes bounds the types of a process, and maxSlots the slots of all.
	maxTypes = 1 << 16
	maxSlots = 1 << 20
	maxName  = 256
	maxBases = 1 << 10
	// maxSize is above the bytes of any object without its items.
	maxSize = 1 << 20
)

// types are the types of a process.
type types struct {
	byAddress map[uint64]*typ
	list      []*typ
	slots     int
	// recent has the types, and the words that are none, that were last asked for.
	recent [1 << 12]struct {
		at  uint64
		typ *typ
	}
}

// typeOf returns the type at an address; nil if there is none.
func (w *walk) typeOf(at uint64) *typ {
	recent := &w.types.recent[at/16%uint64(len(w.types.recent))]
	if recent.at == at {
		return recent.typ
	}
	t, known := w.types.byAddress[at]
	if !known {
		switch t = w.readType(at); {
		case t == nil:
		case len(w.types.list) >= maxTypes:
			t = nil
			w.cut(tooMany{maxTypes, "types"})
		case w.types.slots >= maxSlots:
			t = nil
			w.cut(tooMany{maxSlots, "slots of types"})
		default:
			t.number = uint16(len(w.types.list))
			w.types.list = append(w.types.list, t)
			w.types.byAddress[at] = t
			w.types.slots += len(t.slots)
		}
	}
	recent.at, recent.typ = at, t
	return t
}

func (w *walk) readType(at uint64) *typ {
	var b [typeSize]byte
	if at%8 != 0 || !w.read(at, b[:]) {
		return nil
	}
	u := func(offset int) uint64 { return binary.LittleEndian.Uint64(b[offset:]) }
	t := &typ{
		flags: u(typeFlags), basicSize: u(typeBasicSize), item: u(typeItemSize),
		dictOffset: int64(u(typeDictOffset)), weakOffset: u(typeWeakOffset),
	}
	if t.flags&ready == 0 || t.basicSize < 16 || t.basicSize > maxSize || t.item > maxSize || u(8) == 0 {
		return nil
	}
	t.name = w.cString(u(typeName))
	metaclass := w.cString(w.word(u(8) + typeName))
	t.kind = instance
	switch f := t.flags; {
	case f&dictSubclass != 0:
		t.kind = dict
	case f&listSubclass != 0:
		t.kind = list
	case f&tupleSubclass != 0:
		t.kind = tuple
	case f&exceptionType != 0:
		t.kind = exception
	case f&typeSubclass != 0:
		t.kind = class
	}
	base := at
	for range maxBases {
		if base == 0 {
			break
		}
		k, ok := w.kinds[base]
		if !ok && t.kind == instance {
			k, ok = named[w.cString(w.word(base+typeName))]
		}
		if ok {
			t.kind = k
			break
		}
		w.readSlots(t, w.word(base+typeMembers))
		base = w.word(base + typeBase)
	}
	if t.kind == instance {
		switch {
		case t.flags&(longSubclass|bytesSubclass|strSubclass) != 0:
			if t.dictOffset == 0 && t.flags&managedDict == 0 {
				t.kind = atom
			}
		case isBound(metaclass) && t.flags&collected == 0:
			// an object of C++, unless it has attributes as well
			if t.dictOffset == 0 && len(t.slots) == 0 {
				t.kind = atom
			}
		case t.basicSize > objectHead: // also without the collector, as those of Rust and of some classes of Cython
			t.fields = true
		case t.dictOffset == 0 && t.flags&managedDict == 0:
			t.kind = atom
		}
	}
	t.target = w.IsTarget(t.name, metaclass)
	return t
}

// readSlots adds the members of a type that are objects.
func (w *walk) readSlots(t *typ, at uint64) {
	// PyMemberDef: name, type, offset, flags, documentation
	const size, object, objectEx = 40, 6, 16
	var b [size]byte
	for ; at != 0 && len(t.slots) < maxSize/8 && w.read(at, b[:]); at += size {
		name, kind, offset := binary.LittleEndian.Uint64(b[:]), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint64(b[16:])
		if name == 0 {
			return
		}
		if (kind == object || kind == objectEx) && offset >= 16 && offset+8 <= t.basicSize {
			t.slots = append(t.slots, slot{name, offset})
		}
	}
}

// str returns the text of a str; ok is false if it is none.
func (w *walk) str(at uint64) (_ string, ok bool) {
	var b [40]byte
	if !w.read(at, b[:]) {
		return "", false
	}
	t := w.typeOf(binary.LittleEndian.Uint64(b[8:]))
	if t == nil || t.flags&strSubclass == 0 {
		return "", false
	}
	from, n := w.runtime.Offsets.StrBytes(b[:])
	text := make([]byte, min(n, maxName))
	if !w.read(at+uint64(from), text) {
		return "", false
	}
	s := python.DecodeString(binary.LittleEndian.Uint32(b[python.StrState:]), text)
	if n > maxName {
		s += "…"
	}
	return s, true
}
