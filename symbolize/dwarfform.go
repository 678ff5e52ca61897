package symbolize

// How the value of an attribute is to be understood.
const (
	kindNone       = iota
	kindConst      // a number, in DWARF 2 and 3 also an offset in another section
	kindAddr       // an address
	kindAddrIndex  // an index in the unit's part of .debug_addr
	kindRef        // an offset in .debug_info
	kindOffset     // an offset in another section
	kindText       // a string in the section that is read
	kindStr        // an offset in .debug_str
	kindLineStr    // an offset in .debug_line_str
	kindStrIndex   // an index in the unit's part of .debug_str_offsets
	kindRangeIndex // an index in the unit's part of .debug_rnglists
)

// value is the value of an attribute, not yet looked up.
type value struct {
	kind uint8
	n    uint64
}

// form reads the value of an attribute (DWARF 5, 7.5.6). Those that are of no
// use here are skipped.
func (c *cursor) form(form uint64, u *unit) value {
	switch form {
	case 0x01: // addr
		return value{kindAddr, c.uint(u.addrSize)}
	case 0x0a: // block1
		c.skip(c.uint(1))
	case 0x03: // block2
		c.skip(c.uint(2))
	case 0x04: // block4
		c.skip(c.uint(4))
	case 0x09, 0x18: // block, exprloc
		c.skip(c.uleb())
	case 0x05: // data2
		return value{kindConst, c.uint(2)}
	case 0x06: // data4
		return value{kindConst, c.uint(4)}
	case 0x07: // data8
		return value{kindConst, c.uint(8)}
	case 0x0b, 0x0c: // data1, flag
		return value{kindConst, c.uint(1)}
	case 0x0d: // sdata
		return value{kindConst, uint64(c.sleb())}
	case 0x0f: // udata
		return value{kindConst, c.uleb()}
	case 0x1e: // data16
		c.skip(16)
	case 0x19: // flag_present
		return value{kindConst, 1}
	case 0x08: // string
		v := value{kindText, c.at}
		c.skipText()
		return v
	case 0x0e: // strp
		return value{kindStr, c.uint(u.offsetSize)}
	case 0x1f: // line_strp
		return value{kindLineStr, c.uint(u.offsetSize)}
	case 0x1a, 0x1f02: // strx, GNU_str_index
		return value{kindStrIndex, c.uleb()}
	case 0x25, 0x26, 0x27, 0x28: // strx1 to strx4
		return value{kindStrIndex, c.uint(form - 0x24)}
	case 0x1b, 0x1f01: // addrx, GNU_addr_index
		return value{kindAddrIndex, c.uleb()}
	case 0x29, 0x2a, 0x2b, 0x2c: // addrx1 to addrx4
		return value{kindAddrIndex, c.uint(form - 0x28)}
	case 0x10: // ref_addr, which DWARF 2 counted among the addresses
		if u.version == 2 {
			return value{kindRef, c.uint(u.addrSize)}
		}
		return value{kindRef, c.uint(u.offsetSize)}
	case 0x11: // ref1
		return value{kindRef, u.start + c.uint(1)}
	case 0x12: // ref2
		return value{kindRef, u.start + c.uint(2)}
	case 0x13: // ref4
		return value{kindRef, u.start + c.uint(4)}
	case 0x14: // ref8
		return value{kindRef, u.start + c.uint(8)}
	case 0x15: // ref_udata
		return value{kindRef, u.start + c.uleb()}
	case 0x17: // sec_offset
		return value{kindOffset, c.uint(u.offsetSize)}
	case 0x22: // loclistx
		c.uleb()
	case 0x23: // rnglistx
		return value{kindRangeIndex, c.uleb()}
	// What dwz moved into a file that several share (.gnu_debugaltlink) is not
	// looked for: functions that are described there have no names here.
	case 0x1d, 0x1f20, 0x1f21: // strp_sup, GNU_ref_alt, GNU_strp_alt
		c.skip(u.offsetSize)
	case 0x1c: // ref_sup4
		c.skip(4)
	case 0x20, 0x24: // ref_sig8, ref_sup8
		c.skip(8)
	case 0x16: // indirect: the form stands before the value
		if form := c.uleb(); form != 0x16 && form != formImplicit {
			return c.form(form, u)
		}
		c.bad = true
	default:
		c.bad = true
	}
	return value{}
}

// formImplicit is implicit_const, whose value stands in the abbreviation.
const formImplicit = 0x21

// fixedSize is the size of a form if it is the same everywhere in a unit.
func fixedSize(form uint64, u *unit) (uint64, bool) {
	switch form {
	case 0x01:
		return u.addrSize, true
	case 0x19, formImplicit:
		return 0, true
	case 0x0b, 0x0c, 0x11, 0x25, 0x29:
		return 1, true
	case 0x05, 0x12, 0x26, 0x2a:
		return 2, true
	case 0x27, 0x2b:
		return 3, true
	case 0x06, 0x13, 0x1c, 0x28, 0x2c:
		return 4, true
	case 0x07, 0x14, 0x20, 0x24:
		return 8, true
	case 0x1e:
		return 16, true
	case 0x0e, 0x1f, 0x17, 0x1d, 0x1f20, 0x1f21:
		return u.offsetSize, true
	case 0x10:
		if u.version > 2 {
			return u.offsetSize, true
		}
	}
	return 0, false
}
