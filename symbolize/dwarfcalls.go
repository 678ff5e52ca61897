package symbolize

import (
	"cmp"
	"slices"
)

// loadedUnit is what a unit says about its code: the functions, what was inlined
// into them, and the lines.
type loadedUnit struct {
	unit    *unit
	entries []call
	ranges  []addressRange  // of the calls, one after the other
	tops    []functionRange // of the functions themselves, by address
	scopes  []scopeOf       // by entry
	lines   *lineTable
}

// call is a function or a call that was inlined into one. A function's calls
// follow it, each after the one that it was inlined into.
type call struct {
	entry      uint64 // the offset of the entry that describes the function
	parent     int32  // what it was inlined into, -1 if it is a function
	end        int32  // where the calls within it end
	file, line uint32 // of the call
	first, n   uint32 // its ranges
}

type addressRange struct{ low, high uint64 }

// functionRange is a range of the code of a function, an index of entries.
type functionRange struct {
	addressRange
	call int32
}

// Limits of what is kept of a unit: 10 MB of calls and 8 MB of ranges. What comes
// after them in the unit has lines, but no inlined calls.
const (
	maxCalls      = 1 << 18
	maxCallRanges = 1 << 19
	maxDepth      = 1 << 12
)

// load is a unit's calls and lines.
func (d *debugInfo) load(u *unit) *loadedUnit {
	if l, ok := d.loaded.get(u.start); ok {
		return l
	}
	l := &loadedUnit{unit: u}
	d.loadCalls(l)
	l.lines = d.lineTable(l.unit)
	cost := 256 + 8*len(l.scopes) + 40*len(l.entries) + 16*len(l.ranges) + 24*len(l.tops) + l.lines.cost()
	d.loaded.put(u.start, l, cost)
	return l
}

// loadCalls walks over the entries of a unit. Their tree is flat in the file: an
// entry without a code ends the children of the one before.
func (d *debugInfo) loadCalls(l *loadedUnit) {
	const none = -1
	u := l.unit
	table := d.tableOf(u)
	c := d.info.cursor(u.body, u.end)
	var open []openEntry
	inside := openEntry{call: none}
	for c.more() && d.work(1) {
		at := c.at
		code := c.uleb()
		if code == 0 {
			if len(open) == 0 {
				break
			}
			l.close(open[len(open)-1])
			open = open[:len(open)-1]
			inside = openEntry{call: none}
			if len(open) > 0 {
				inside = open[len(open)-1]
			}
			continue
		}
		a := table.get(code)
		if a == nil || !d.work(len(a.attrs)) {
			break
		}
		this := openEntry{call: inside.call, scope: inside.scope}
		switch a.tag {
		case tagSubprogram, tagInlined:
			e := c.attributes(a, u)
			if a.tag == tagSubprogram {
				this.call = none
				if e.linkage.kind == kindNone && e.name.kind != kindNone {
					l.addScope(at, inside.scope)
				}
			}
			if k, ok := d.addCall(l, at, a.tag, this.call, &e); ok && !c.bad {
				this.call, this.own = k, true
			}
		default:
			c.skipAttributes(a, u)
			if isScope(a.tag) {
				l.addScope(at, inside.scope)
			}
		}
		if a.children {
			if len(open) == maxDepth {
				break
			}
			if isScope(a.tag) {
				this.scope = at
			}
			open = append(open, this)
			inside = this
		}
	}
	for _, o := range open { // a unit that ends early
		l.close(o)
	}
	slices.SortStableFunc(l.tops, func(a, b functionRange) int { return cmp.Compare(a.low, b.low) })
	l.entries, l.ranges, l.tops = slices.Clone(l.entries), slices.Clone(l.ranges), slices.Clone(l.tops)
}

// openEntry is an entry whose children are being read.
type openEntry struct {
	call  int32  // that it is or belongs to, -1 if there is none
	own   bool   // it is that call
	scope uint64 // what functions in it are members of, 0 if of nothing
}

func (l *loadedUnit) close(o openEntry) {
	if o.own {
		l.entries[o.call].end = int32(len(l.entries))
	}
}

// addCall adds a function or an inlined call, if it has code.
func (d *debugInfo) addCall(l *loadedUnit, at, tag uint64, parent int32, e *entry) (int32, bool) {
	if tag == tagInlined && parent < 0 || len(l.entries) >= maxCalls {
		return 0, false
	}
	k := int32(len(l.entries))
	first := len(l.ranges)
	d.eachRange(l.unit, e, func(low, high uint64) bool {
		if d.text(low) && len(l.ranges) < maxCallRanges {
			l.ranges = append(l.ranges, addressRange{low, high})
			if tag == tagSubprogram {
				l.tops = append(l.tops, functionRange{addressRange{low, high}, k})
			}
		}
		return len(l.ranges) < maxCallRanges
	})
	if len(l.ranges) == first {
		return 0, false
	}
	l.entries = append(l.entries, call{
		entry: at, parent: parent, end: k + 1, file: uint32(e.callFile), line: uint32(e.callLine),
		first: uint32(first), n: uint32(len(l.ranges) - first),
	})
	return k, true
}

func (l *loadedUnit) contains(c *call, vaddr uint64) bool {
	for _, r := range l.ranges[c.first : c.first+c.n] {
		if vaddr-r.low < r.high-r.low {
			return true
		}
	}
	return false
}

// function is the innermost function around an address, -1 if there is none.
func (l *loadedUnit) function(vaddr uint64) int32 {
	i, _ := slices.BinarySearchFunc(l.tops, vaddr, func(r functionRange, a uint64) int {
		if r.low <= a {
			return -1
		}
		return 1
	})
	for n := 0; i > 0 && n <= maxInside; n++ {
		i--
		if r := &l.tops[i]; vaddr < r.high {
			return r.call
		}
	}
	return -1
}

// maxInlined is how many calls deep a compiler may have inlined.
const maxInlined = 256

// calls are the calls at an address, innermost first.
func (l *loadedUnit) calls(d *debugInfo, vaddr uint64) []Function {
	file, line, known := l.lines.at(vaddr)
	at := l.function(vaddr)
	if at < 0 { // a file of assembly has lines and no functions
		if !known {
			return nil
		}
		return []Function{{File: l.lines.file(d, file), Line: int(line)}}
	}
	chain := []int32{at}
	for i := at + 1; i < l.entries[at].end && len(chain) < maxInlined; i++ {
		if c := &l.entries[i]; c.parent == chain[len(chain)-1] && l.contains(c, vaddr) {
			chain = append(chain, i)
		}
	}
	found := make([]Function, 0, len(chain))
	for i := len(chain) - 1; i >= 0; i-- {
		c := &l.entries[chain[i]]
		f := d.describe(c.entry, 0)
		f.Inlined = c.parent >= 0
		if line > 0 || known {
			f.File, f.Line = l.lines.file(d, file), int(line)
		}
		file, line, known = c.file, c.line, true
		found = append(found, f)
	}
	return found
}

// maxOrigins is how many references lead to a function's name: from the call to
// the function, from there to its declaration.
const maxOrigins = 8

// describe gives the names of the function that an entry describes.
func (d *debugInfo) describe(at uint64, depth int) (f Function) {
	named := at
	for range maxOrigins {
		u := d.unitOf(at)
		if u == nil {
			break
		}
		c := d.info.cursor(at, u.end)
		a := d.tableOf(u).get(c.uleb())
		if a == nil {
			break
		}
		e := c.attributes(a, u)
		if c.bad {
			break
		}
		if f.Symbol = d.string(u, e.linkage, &d.info); f.Symbol != "" {
			f.Name = ShortName(f.Symbol)
			return f
		}
		if f.Name == "" {
			f.Name, named = cut(d.string(u, e.name, &d.info), maxShort), at
		}
		if e.origin.kind != kindRef {
			break
		}
		at = e.origin.n
	}
	if f.Name != "" {
		f.Name = cut(d.qualified(named, f.Name, depth), maxShort)
	}
	return f
}
