package symbolize

import (
	"cmp"
	"slices"
)

// lineTable tells which line of which file an address comes from.
type lineTable struct {
	unit      *unit
	directory string // of the compilation
	old       bool   // before DWARF 5 files and directories were counted from 1
	dirs      []value
	files     []lineFile
	rows      []lineRow
	sequences []lineSequence // by address
}

type lineFile struct {
	name value
	dir  uint64
}

// lineRow is valid up to the next one.
type lineRow struct {
	addr       uint64
	file, line uint32
}

// lineSequence is a run of rows with rising addresses.
type lineSequence struct {
	low, high  uint64
	first, end uint32
}

// Limits of a line table.
const (
	maxLineFiles = 1 << 16
	maxLineRows  = 1 << 20 // 16 MB
)

func (t *lineTable) cost() int {
	if t == nil {
		return 0
	}
	return 16*len(t.rows) + 24*len(t.sequences) + 24*len(t.files) + 16*len(t.dirs)
}

// at is the file, by its number in the table, and the line of an address.
func (t *lineTable) at(vaddr uint64) (file, line uint32, ok bool) {
	if t == nil {
		return 0, 0, false
	}
	i, _ := slices.BinarySearchFunc(t.sequences, vaddr, func(s lineSequence, a uint64) int {
		if s.low <= a {
			return -1
		}
		return 1
	})
	for n := 0; i > 0 && n <= maxInside; n++ {
		i--
		s := &t.sequences[i]
		if vaddr >= s.high {
			continue
		}
		rows := t.rows[s.first:s.end]
		// of several rows for one address the last one counts
		k, _ := slices.BinarySearchFunc(rows, vaddr, func(r lineRow, a uint64) int {
			if r.addr <= a {
				return -1
			}
			return 1
		})
		if k == 0 {
			continue
		}
		return rows[k-1].file, rows[k-1].line, true
	}
	return 0, 0, false
}

// file is the path of a file of the table, "" if there is no such file.
func (t *lineTable) file(d *debugInfo, number uint32) string {
	if t == nil {
		return ""
	}
	dirs, i := t.dirs, int(number)
	if t.old {
		i--
	}
	if i < 0 || i >= len(t.files) {
		return ""
	}
	f := &t.files[i]
	name := d.string(t.unit, f.name, &d.line)
	dir := f.dir
	if t.old {
		if dir--; f.dir == 0 {
			return join(t.directory, name)
		}
	}
	if dir < uint64(len(dirs)) {
		name = join(d.string(t.unit, dirs[dir], &d.line), name)
	}
	if !t.old && dir == 0 { // the directory of the compilation, which may be relative
		return name
	}
	return join(t.directory, name)
}

// lineTable reads the lines of a unit (DWARF 5, 6.2.4); nil if it has none.
func (d *debugInfo) lineTable(u *unit) *lineTable {
	if !u.hasLines {
		return nil
	}
	c := d.line.cursor(u.stmtList, d.line.size)
	length, offsetSize := c.length()
	if c.bad || length > c.end-c.at {
		return nil
	}
	c.end = c.at + length
	version := c.uint(2)
	if version < 2 || version > 5 {
		return nil
	}
	sizes := *u // the sizes of this header, not of the unit's
	sizes.offsetSize = offsetSize
	if version == 5 {
		sizes.addrSize = c.uint(1)
		c.skip(1) // the size of segment selectors
	}
	length = c.uint(offsetSize)
	if c.bad || length > c.end-c.at {
		return nil
	}
	start := c.at + length
	p := lineProgram{d: d, c: c, t: &lineTable{unit: u, directory: d.directory(u), old: version < 5}}
	p.minLength = c.uint(1)
	if version >= 4 {
		c.skip(1) // operations in an instruction of a VLIW machine
	}
	c.skip(1) // whether rows are statements at first
	p.lineBase = int64(int8(c.u8()))
	p.lineRange = int64(c.u8())
	p.opcodeBase = c.u8()
	for i := uint8(1); i < p.opcodeBase; i++ {
		p.operands[i] = c.u8()
	}
	if version == 5 {
		for _, f := range c.lineNames(d, &sizes) {
			p.t.dirs = append(p.t.dirs, f.name)
		}
		p.t.files = c.lineNames(d, &sizes)
	} else {
		p.t.names(c)
	}
	if c.bad || start < c.at {
		return nil
	}
	c.at = start
	p.run()
	slices.SortStableFunc(p.t.sequences, func(a, b lineSequence) int { return cmp.Compare(a.low, b.low) })
	p.t.rows = slices.Clone(p.t.rows)
	return p.t
}

// names reads directories and files as they stood before DWARF 5.
func (t *lineTable) names(c *cursor) {
	for len(t.dirs) < maxLineFiles {
		v := value{kindText, c.at}
		if c.skipText(); c.bad || c.at == v.n+1 {
			break
		}
		t.dirs = append(t.dirs, v)
	}
	for len(t.files) < maxLineFiles {
		f := lineFile{name: value{kindText, c.at}}
		if c.skipText(); c.bad || c.at == f.name.n+1 {
			break
		}
		f.dir = c.uleb()
		c.uleb() // when it was changed
		c.uleb() // its length
		t.files = append(t.files, f)
	}
}

// lineNames reads a list of directories or files of DWARF 5, which begins with
// what is said of each.
func (c *cursor) lineNames(d *debugInfo, u *unit) (list []lineFile) {
	const contentPath, contentDirectory = 1, 2
	var format [256]attribute
	n := c.u8()
	for i := range n {
		format[i] = attribute{name: c.uleb(), form: c.uleb()}
	}
	count := c.uleb()
	for ; count > 0 && !c.bad && len(list) < maxLineFiles && d.work(1+int(n)); count-- {
		var f lineFile
		for _, a := range format[:n] {
			v := c.form(a.form, u)
			switch a.name {
			case contentPath:
				f.name = v
			case contentDirectory:
				f.dir = v.n
			}
		}
		list = append(list, f)
	}
	return list
}
