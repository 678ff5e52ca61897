package unwind

import (
	"fmt"
	"sort"
)

// frames is the content of an .eh_frame. Its records are CIEs and FDEs: an FDE describes a part
// of the code, and a CIE is the common part of several FDEs.
type frames struct {
	addr uint64 // virtual address of its first byte
	data []byte
	// hdr is the virtual address of .eh_frame_hdr, 0 if there is none
	hdr uint64
	// ends is true if a record of length 0 ends the frames, after at least atLeast FDEs. Any
	// object file may contribute such a terminator, and crtend.o does. If the section's end is
	// known, terminators are ignored.
	ends    bool
	atLeast uint64
	// pause is called now and then, unless it is nil
	pause func() error
}

// cie is a common information entry.
type cie struct {
	at         uint32 // its offset in the data
	usable     bool
	signal     bool  // augmentation S: code to which signal handlers return
	augmented  bool  // augmentation z: FDEs have a length of augmentation data
	encoding   uint8 // of an FDE's addresses
	codeFactor uint64
	dataFactor int64
	initial    state
}

// fde is a frame description entry: the code from start to before end, and the position of
// its instructions in the data.
type fde struct {
	start, end    uint64
	code, codeEnd uint32
	cie           uint32 // index
}

// read reads all records. It returns the FDEs of the code in text, cut to it.
func (f *frames) read(m *machine, text spans) (cies []cie, fdes []fde, err error) {
	// a typical FDE takes 40 to 80 bytes
	fdes = make([]fde, 0, min(len(f.data)/40, maxFDEs))
	c := cursor{b: f.data}
	seen := uint64(0)
	for n := 0; c.more(); n++ {
		if n%recordsToPause == 0 {
			if err := f.rest(); err != nil {
				return nil, nil, err
			}
		}
		begin := c.at
		length := uint64(c.u32())
		if length == 0 && !c.bad {
			if f.ends && seen >= f.atLeast {
				break
			}
			continue
		}
		if length == 1<<32-1 {
			length = c.u64()
		}
		at := c.at
		record := c.take(length)
		if c.bad {
			break
		}
		r := cursor{b: f.data[:at+len(record)], at: at}
		back := r.u32() // 4 bytes also after a 64-bit length, as LLVM reads it
		if back == 0 && !r.bad {
			k := f.readCIE(m, r)
			k.at = uint32(begin)
			if cies = append(cies, k); len(cies) > maxCIEs {
				return nil, nil, fmt.Errorf("%w: more than %d CIEs", ErrTooLarge, maxCIEs)
			}
			continue
		}
		seen++
		k := findCIE(cies, int64(at)-int64(back))
		if r.bad || k < 0 || !cies[k].usable {
			continue
		}
		if d, ok := f.readFDE(r, &cies[k], text); ok {
			d.cie = uint32(k)
			if len(fdes) == maxFDEs {
				return nil, nil, fmt.Errorf("%w: more than %d functions", ErrTooLarge, maxFDEs)
			}
			fdes = append(fdes, d)
		}
	}
	return cies, fdes, nil
}

// rest calls pause.
func (f *frames) rest() error {
	if f.pause == nil {
		return nil
	}
	return f.pause()
}

// findCIE returns the index of the CIE at an offset, -1 if there is none.
func findCIE(cies []cie, at int64) int {
	if n := len(cies) - 1; n >= 0 && int64(cies[n].at) == at { // the usual case
		return n
	}
	n := sort.Search(len(cies), func(i int) bool { return int64(cies[i].at) >= at })
	if n == len(cies) || int64(cies[n].at) != at {
		return -1
	}
	return n
}

// readCIE reads a CIE from the end of its identifier on.
func (f *frames) readCIE(m *machine, c cursor) (k cie) {
	version := c.u8()
	augmentation := c.string()
	if version == 4 {
		if size, segment := c.u8(), c.u8(); size != 8 || segment != 0 {
			return k
		}
	}
	k.codeFactor, k.dataFactor = c.uleb(), c.sleb()
	var ra uint64
	if version == 1 {
		ra = uint64(c.u8())
	} else {
		ra = c.uleb()
	}
	if c.bad || version != 1 && version != 3 && version != 4 || ra != regRA ||
		k.codeFactor > maxFactor || k.dataFactor > maxFactor || k.dataFactor < -maxFactor {
		return k
	}
	if augmentation != "" && !f.readAugmentation(&k, &c, augmentation) {
		return k
	}
	k.usable = m.begin(&k, c)
	return k
}

// readAugmentation reads the data that the letters of an augmentation select.
func (f *frames) readAugmentation(k *cie, c *cursor, letters string) bool {
	if letters[0] != 'z' {
		return false
	}
	k.augmented = true
	data := c.uleb()
	at := c.at
	if c.take(data) == nil {
		return false
	}
	a := cursor{b: c.b[:c.at], at: at}
	for _, letter := range letters[1:] {
		switch letter {
		case 'R':
			k.encoding = a.u8()
		case 'S':
			k.signal = true
		case 'L': // how FDEs point to their language's data
			a.u8()
		case 'P': // the language's personality routine
			a.value(a.u8()) // aligned pointers, which have a format of their own, are unused
		default:
			return false
		}
	}
	return !a.bad
}

// readFDE reads the rest of an FDE after its reference to the CIE; false if it covers no
// code.
func (f *frames) readFDE(c cursor, k *cie, text spans) (d fde, ok bool) {
	d.start = c.pointer(k.encoding, f.addr, f.hdr)
	// the length has the format of an address, but no base
	size := c.value(k.encoding)
	if format := k.encoding & formatMask; format == formatSdata4 {
		size = uint64(uint32(size))
	} else if format == formatSdata2 {
		size = uint64(uint16(size))
	}
	if k.augmented {
		c.take(c.uleb())
	}
	last, ok := text.end(d.start)
	if c.bad || !ok || size == 0 { // linkers leave FDEs of functions that they dropped
		return d, false
	}
	d.end = d.start + min(size, last-d.start)
	d.code, d.codeEnd = uint32(c.at), uint32(len(c.b))
	return d, true
}
