package lines

import (
	"debug/dwarf"
	"path"
	"slices"

	"ttmem/symbolize"
)

// loaded is the description of a unit's code.
type loaded struct {
	// entries are the functions and the calls inlined into them, each after its parent.
	entries []call
	// scopes map namespaces, classes and functions to their scope.
	scopes  map[dwarf.Offset]dwarf.Offset
	rows    []dwarf.LineEntry
	files   []*dwarf.LineFile
	compDir string
}

// call is a function, or a call that was inlined into one.
type call struct {
	entry      dwarf.Offset // its description
	parent     int          // the caller into which it was inlined, -1 for a function
	file, line int          // of the call
	ranges     [][2]uint64
}

// maxLoaded bounds the calls, scopes and rows in memory, to some 100 MB.
const maxLoaded = 1 << 20

// load reads a unit unless it is in memory.
func (d *debugInfo) load(u *unit) *loaded {
	if u.loaded != nil {
		return u.loaded
	}
	l := &loaded{scopes: make(map[dwarf.Offset]dwarf.Offset)}
	d.loadEntries(u, l)
	d.loadLines(u, l)
	if d.loadedSize += len(l.entries) + len(l.scopes) + len(l.rows); d.loadedSize > maxLoaded {
		for _, other := range d.units {
			other.loaded = nil
		}
		d.loadedSize = 0
	}
	u.loaded = l
	return l
}

// loadEntries walks the entries of a unit. Their tree is flat in the file: an entry without
// a tag ends the children of the one before.
func (d *debugInfo) loadEntries(u *unit, l *loaded) {
	type parent struct {
		call  int          // of the entry or its parent, -1 if there is none
		scope dwarf.Offset // of the entry or its parent, 0 if there is none
	}
	r := d.data.Reader()
	r.Seek(u.root)
	for parents := []parent{{call: -1}}; len(parents) > 0; {
		e, err := r.Next()
		if err != nil || e == nil || e.Offset >= u.end {
			return
		}
		if e.Tag == 0 {
			parents = parents[:len(parents)-1]
			continue
		}
		this := parents[len(parents)-1]
		switch e.Tag {
		case dwarf.TagSubprogram:
			this.call = d.addCall(l, e, -1)
		case dwarf.TagInlinedSubroutine:
			if this.call >= 0 {
				this.call = max(this.call, d.addCall(l, e, this.call))
			}
		}
		switch e.Tag {
		case dwarf.TagSubprogram, dwarf.TagNamespace, dwarf.TagClassType, dwarf.TagStructType, dwarf.TagUnionType:
			if this.scope != 0 {
				l.scopes[e.Offset] = this.scope
			}
			this.scope = e.Offset
		}
		if e.Children {
			parents = append(parents, this)
		}
	}
}

// addCall adds a function or an inlined call and returns its number; -1 if it has no code.
func (d *debugInfo) addCall(l *loaded, e *dwarf.Entry, parent int) int {
	ranges := d.ranges(e)
	if len(ranges) == 0 {
		return -1
	}
	file, _ := e.Val(dwarf.AttrCallFile).(int64)
	line, _ := e.Val(dwarf.AttrCallLine).(int64)
	l.entries = append(l.entries, call{e.Offset, parent, int(file), int(line), ranges})
	return len(l.entries) - 1
}

func (d *debugInfo) loadLines(u *unit, l *loaded) {
	root := d.entry(u.root)
	if root == nil {
		return
	}
	l.compDir, _ = root.Val(dwarf.AttrCompDir).(string)
	r, err := d.data.LineReader(root)
	if err != nil || r == nil {
		return
	}
	for e := (dwarf.LineEntry{}); r.Next(&e) == nil; {
		l.rows = append(l.rows, e)
	}
	l.files = r.Files()
}

// calls returns the calls at an address, innermost first.
func (l *loaded) calls(d *debugInfo, vaddr uint64) (found []symbolize.Function) {
	var chain []*call // outermost first
	number, begin := 0, uint64(0)
	for i := range l.entries {
		c := &l.entries[i]
		switch low, ok := nearest(c.ranges, vaddr); {
		case !ok:
		case c.parent < 0 && low >= begin:
			chain, number, begin = []*call{c}, i, low
		case len(chain) > 0 && c.parent == number:
			chain, number = append(chain, c), i
		}
	}
	file, line, known := l.line(vaddr)
	if len(chain) == 0 && known { // an assembly file has lines and no functions
		return []symbolize.Function{{File: file, Line: line}}
	}
	for _, c := range slices.Backward(chain) {
		f := d.describe(c.entry)
		f.Inlined = c.parent >= 0
		if known {
			f.File, f.Line = file, line
		}
		found = append(found, f)
		file, line, known = "", c.line, true
		if c.file >= 0 && c.file < len(l.files) {
			file = l.path(l.files[c.file])
		}
	}
	return found
}

// line returns the file and the line of an address.
func (l *loaded) line(vaddr uint64) (file string, line int, ok bool) {
	var row *dwarf.LineEntry
	for i := range max(0, len(l.rows)-1) {
		// A row is valid up to the next one of its sequence.
		if r := &l.rows[i]; r.Address <= vaddr && vaddr < l.rows[i+1].Address && !r.EndSequence &&
			(row == nil || r.Address >= row.Address) {
			row = r
		}
	}
	if row == nil {
		return "", 0, false
	}
	return l.path(row.File), row.Line, true
}

// path returns the path of a source file. For DWARF 5 debug/dwarf leaves some paths
// relative to the directory of the compilation.
func (l *loaded) path(f *dwarf.LineFile) string {
	switch {
	case f == nil:
		return ""
	case f.Name == "" || path.IsAbs(f.Name) || !path.IsAbs(l.compDir):
		return f.Name
	}
	return path.Join(l.compDir, f.Name)
}
