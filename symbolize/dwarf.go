package symbolize

import (
	"cmp"
	"debug/elf"
	"path"
	"slices"
)

// debugInfo reads lines and inlined functions from the DWARF sections of a file,
// versions 2 to 5. Units whose description was split off (.dwo) have lines only.
//
// debug/dwarf is not used: it wants all sections in memory, and allocates as many
// files as the header of a line table claims to have.
type debugInfo struct {
	executable []elf.ProgHeader // of the mapped file

	info, abbrev, line, str, lineStr     span
	ranges, rangeLists, addrs, strOffset span

	indexed bool
	units   []unit // by start
	index   []unitRange
	// workLeft bounds what a malformed file may cost, see work
	workLeft int

	// loaded are the units that were asked for last
	loaded recent[uint64, *loadedUnit]
	// tables are those of abbreviations by their offsets
	tables recent[uint64, *abbreviations]
}

// unit is a compilation unit's place in .debug_info, and what its root says.
type unit struct {
	start, body, end     uint64 // of the header, of the root entry, of the unit
	abbrev               uint64
	stmtList             uint64
	low                  uint64
	strBase              uint64
	addrBase, rangesBase uint64
	offsetSize, addrSize uint64
	version              uint16
	hasLines             bool
}

// unitRange says which unit describes the code in a range of addresses.
type unitRange struct {
	low  uint64
	size uint32
	unit uint32
}

// Limits of what is read of a file that may be hostile. For comparison: the
// debug file of Debian's libc has 2,063 units.
const (
	maxUnits      = 1 << 17
	maxUnitRanges = 1 << 20 // 16 MB
	maxWork       = 1 << 26 // entries, attributes and rows for one address
	maxLoaded     = 2 << 20 // bytes of one half of the units kept of a file
	maxTables     = 2       // tables of abbreviations of one half of those kept
)

// openDebugInfo opens the debug information in a file about the code of mapped,
// which may be the same. Nil if it has none that can be read.
func openDebugInfo(e, mapped *ELF) *debugInfo {
	if !e.hasDebugInfo() {
		return nil
	}
	d := &debugInfo{}
	d.loaded.limit, d.tables.limit = maxLoaded, maxTables
	for _, p := range mapped.headers {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 {
			d.executable = append(d.executable, p)
		}
	}
	for name, s := range map[string]*span{
		"info": &d.info, "abbrev": &d.abbrev, "line": &d.line, "str": &d.str, "line_str": &d.lineStr,
		"ranges": &d.ranges, "rnglists": &d.rangeLists, "addr": &d.addrs, "str_offsets": &d.strOffset,
	} {
		var err error
		if *s, err = e.span(name); err != nil {
			d.close()
			return nil
		}
	}
	return d
}

func (d *debugInfo) close() {
	if d == nil {
		return
	}
	for _, s := range []*span{
		&d.info, &d.abbrev, &d.line, &d.str, &d.lineStr, &d.ranges, &d.rangeLists, &d.addrs, &d.strOffset,
	} {
		s.close()
	}
	d.units, d.index = nil, nil
	d.indexed = true
	d.loaded.drop()
	d.tables.drop()
}

// work counts what is done for one address, and reports whether more may be.
func (d *debugInfo) work(n int) bool {
	d.workLeft -= n
	return d.workLeft >= 0
}

// at are the calls at an address, innermost first, without the names for people;
// none if the debug information does not describe the address.
func (d *debugInfo) at(vaddr uint64) []Function {
	if d == nil {
		return nil
	}
	d.workLeft = maxWork
	if !d.indexed {
		d.indexed = true
		d.indexUnits()
	}
	i, _ := slices.BinarySearchFunc(d.index, vaddr, func(r unitRange, a uint64) int {
		if r.low <= a {
			return -1
		}
		return 1
	})
	for n := 0; i > 0 && n <= maxInside; n++ {
		i--
		if r := d.index[i]; vaddr-r.low < uint64(r.size) {
			return d.load(&d.units[r.unit]).calls(d, vaddr)
		}
	}
	return nil
}

// indexUnits reads the headers and the roots of all units. Their ranges are
// taken from the roots and not from .debug_aranges, which clang does not write.
func (d *debugInfo) indexUnits() {
	var table *abbreviations
	var tableOf, tableCode uint64
	for at := uint64(0); at < d.info.size && len(d.units) < maxUnits && d.work(1); {
		c := d.info.cursor(at, d.info.size)
		u, ok := unitHeader(c, at)
		if c.bad {
			break
		}
		at = u.end
		if !ok {
			continue
		}
		code := c.uleb()
		if table == nil || tableOf != u.abbrev || tableCode != code {
			table, tableOf, tableCode = d.abbreviations(&u, code), u.abbrev, code
		}
		a := table.get(code)
		if a == nil {
			continue
		}
		e := c.attributes(a, &u)
		if c.bad {
			continue
		}
		if e.stmtList.kind == kindOffset || e.stmtList.kind == kindConst {
			u.stmtList, u.hasLines = e.stmtList.n, true
		}
		// the bases default to the place behind the header of the section
		head := uint64(8)
		if u.offsetSize == 8 {
			head = 16
		}
		u.strBase, u.addrBase, u.rangesBase = head, head, head+4
		for _, b := range []struct {
			v  value
			to *uint64
		}{{e.strBase, &u.strBase}, {e.addrBase, &u.addrBase}, {e.rangesBase, &u.rangesBase}} {
			if b.v.kind != kindNone {
				*b.to = b.v.n
			}
		}
		u.low = d.address(&u, e.low)
		d.units = append(d.units, u)
		d.eachRange(&u, &e, func(low, high uint64) bool {
			d.addRange(low, high, len(d.units)-1)
			return len(d.index) < maxUnitRanges
		})
	}
	slices.SortFunc(d.index, func(a, b unitRange) int { return cmp.Compare(a.low, b.low) })
	d.index = slices.Clone(d.index)
}

func (d *debugInfo) addRange(low, high uint64, unit int) {
	if !d.text(low) || len(d.index) >= maxUnitRanges {
		return
	}
	size := uint32(min(high-low, 1<<32-1))
	// functions follow each other, if each has a section of its own
	if n := len(d.index); n > 0 {
		if r := &d.index[n-1]; int(r.unit) == unit && r.low+uint64(r.size) <= low && low-r.low < 1<<31 &&
			low-r.low-uint64(r.size) < 16 && size < 1<<31 {
			r.size = uint32(low-r.low) + size
			return
		}
	}
	d.index = append(d.index, unitRange{low, size, uint32(unit)})
}

// text reports whether an address is one of the file's code. Of functions that
// the linker left out, ranges at 0 or -1 remain.
func (d *debugInfo) text(vaddr uint64) bool {
	for i := range d.executable {
		if p := &d.executable[i]; vaddr-p.Vaddr < p.Memsz {
			return true
		}
	}
	return false
}

// unitHeader reads a unit's header (DWARF 5, 7.5.1); false if it is of a kind or
// version that does not matter here.
func unitHeader(c *cursor, at uint64) (u unit, ok bool) {
	length, offsetSize := c.length()
	u = unit{start: at, offsetSize: offsetSize, end: c.at + length}
	if c.bad || length > c.end-c.at {
		c.bad = true
		return u, false
	}
	c.end = u.end
	u.version = uint16(c.uint(2))
	kind := uint8(1)
	switch {
	case u.version >= 2 && u.version <= 4:
		u.abbrev = c.uint(offsetSize)
		u.addrSize = c.uint(1)
	case u.version == 5:
		kind = c.u8()
		u.addrSize = c.uint(1)
		u.abbrev = c.uint(offsetSize)
		if kind == 4 { // a skeleton, with the id of its .dwo
			c.skip(8)
		}
	}
	u.body = c.at
	// 1 compile, 3 partial, 4 skeleton; 2, 5 and 6 are types and parts of .dwo
	if c.bad {
		c.bad = false // the next unit may be sound
		return u, false
	}
	return u, (kind == 1 || kind == 3 || kind == 4) && u.addrSize == 8 && u.version >= 2 && u.version <= 5
}

// unitOf is the unit that an offset of .debug_info lies in.
func (d *debugInfo) unitOf(at uint64) *unit {
	i, found := slices.BinarySearchFunc(d.units, at, func(u unit, at uint64) int { return cmp.Compare(u.start, at) })
	if !found {
		i--
	}
	if i < 0 || at < d.units[i].body || at >= d.units[i].end {
		return nil
	}
	return &d.units[i]
}

// string is a string attribute; section is where strings stand that are written
// out in place.
func (d *debugInfo) string(u *unit, v value, section *span) string {
	switch v.kind {
	case kindText:
		return section.text(v.n)
	case kindStr:
		return d.str.text(v.n)
	case kindLineStr:
		return d.lineStr.text(v.n)
	case kindStrIndex:
		if v.n > d.strOffset.size {
			return ""
		}
		c := d.strOffset.cursor(u.strBase+v.n*u.offsetSize, d.strOffset.size)
		if at := c.uint(u.offsetSize); !c.bad {
			return d.str.text(at)
		}
	}
	return ""
}

// directory is where a unit was compiled.
func (d *debugInfo) directory(u *unit) string {
	c := d.info.cursor(u.body, u.end)
	code := c.uleb()
	if a := d.abbreviations(u, code).get(code); a != nil {
		if e := c.attributes(a, u); !c.bad {
			return d.string(u, e.compDir, &d.info)
		}
	}
	return ""
}

// join is a path below a directory, unless it is absolute.
func join(dir, name string) string {
	if name == "" || path.IsAbs(name) || dir == "" {
		return name
	}
	return path.Join(dir, name)
}
