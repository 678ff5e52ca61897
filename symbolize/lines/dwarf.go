package lines

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
)

// debugInfo reads lines and inlined calls from the DWARF of a file. It runs in a separate
// process, because a malformed file may cost any amount of memory.
type debugInfo struct {
	data       *dwarf.Data
	units      []*unit
	loadedSize int // calls, scopes and rows of the loaded units
}

// unit is a compilation unit.
type unit struct {
	root, end dwarf.Offset // of the root entry, of the unit
	ranges    [][2]uint64  // of its code
	loaded    *loaded      // nil until an address in it is resolved
}

// openDebugInfo opens the DWARF of a file. It maps the file: DWARF may have gigabytes, and little
// of it is read.
func openDebugInfo(f *os.File) (*debugInfo, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	whole, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_PRIVATE)
	if err != nil {
		return nil, err
	}
	e, err := elf.NewFile(bytes.NewReader(whole))
	if err != nil {
		return nil, err
	}
	content := make(map[string][]byte)
	for _, s := range e.Sections {
		before, name, _ := strings.Cut(s.Name, "debug_") // .debug_ or, in an old form of compression, .zdebug_
		switch name {
		case "abbrev", "info", "line", "ranges", "str", "addr", "line_str", "str_offsets", "rnglists":
			switch {
			case s.Type == elf.SHT_NOBITS:
			case s.Flags&elf.SHF_COMPRESSED == 0 && before == ".":
				content[name] = whole[s.Offset:][:s.Size]
			default:
				if content[name], err = s.Data(); err != nil {
					return nil, err
				}
			}
		}
	}
	data, err := dwarf.New(content["abbrev"], nil, nil, content["info"], content["line"], nil, content["ranges"], content["str"])
	if err != nil {
		return nil, err
	}
	d := &debugInfo{data: data}
	for _, name := range []string{"addr", "line_str", "str_offsets", "rnglists"} {
		_ = data.AddSection(".debug_"+name, content[name]) // it reads nothing yet
	}
	d.findUnits()
	return d, nil
}

// findUnits finds the units and their ranges. debug/dwarf can find the unit of an address
// too, but reads all of them each time.
func (d *debugInfo) findUnits() {
	r := d.data.Reader()
	last := &unit{}
	for {
		e, err := r.Next()
		if err != nil || e == nil {
			return
		}
		last.end = e.Offset
		last = &unit{root: e.Offset, end: math.MaxUint32, ranges: d.ranges(e)}
		if e.Tag == dwarf.TagCompileUnit {
			d.units = append(d.units, last)
		}
		r.SkipChildren()
	}
}

// entry reads an entry; nil if there is none.
func (d *debugInfo) entry(at dwarf.Offset) *dwarf.Entry {
	r := d.data.Reader()
	r.Seek(at)
	e, err := r.Next()
	if err != nil {
		return nil
	}
	return e
}

// ranges returns the addresses of an entry's code. Functions that the linker left out seem to
// begin at 0, or at 1 if a 0 would end a list of ranges.
func (d *debugInfo) ranges(e *dwarf.Entry) [][2]uint64 {
	all, _ := d.data.Ranges(e)
	return slices.DeleteFunc(all, func(r [2]uint64) bool { return r[0] <= 1 })
}

// nearest returns the start of the last range that contains an address.
func nearest(ranges [][2]uint64, vaddr uint64) (low uint64, ok bool) {
	for _, r := range ranges {
		if r[0] <= vaddr && vaddr < r[1] && r[0] >= low {
			low, ok = r[0], true
		}
	}
	return low, ok
}

// at returns the calls at an address, innermost first; none if the debug information does
// not describe it.
func (d *debugInfo) at(vaddr uint64) []symbolize.Function {
	var of *unit
	begin := uint64(0)
	for _, u := range d.units {
		if low, ok := nearest(u.ranges, vaddr); ok && low >= begin {
			of, begin = u, low
		}
	}
	if of == nil {
		return nil
	}
	return d.load(of).calls(d, vaddr)
}
