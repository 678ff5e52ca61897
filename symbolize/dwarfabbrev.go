package symbolize

// abbreviation tells which attributes an entry has (DWARF 5, 7.5.3).
type abbreviation struct {
	tag      uint64
	children bool
	fixed    bool // whether the attributes take size bytes in each entry
	size     uint64
	attrs    []attribute
}

type attribute struct {
	name, form uint64
	implicit   int64 // the value, if form is formImplicit
}

// abbreviations are those of a unit, by their codes, which are small numbers
// almost always.
type abbreviations struct {
	low  []*abbreviation
	high map[uint64]*abbreviation
}

// Limits of a table of abbreviations, whose codes are small in practice.
const (
	maxAbbreviations = 1 << 16
	maxAttributes    = 1 << 18 // of all abbreviations of a table
)

func (t *abbreviations) get(code uint64) *abbreviation {
	if code < uint64(len(t.low)) {
		return t.low[code]
	}
	return t.high[code]
}

// abbreviations reads a unit's table, up to the one with a code if last is not 0.
func (d *debugInfo) abbreviations(u *unit, last uint64) *abbreviations {
	t := &abbreviations{low: make([]*abbreviation, 1)}
	c := d.abbrev.cursor(u.abbrev, d.abbrev.size)
	attributes := 0
	for range maxAbbreviations {
		code := c.uleb()
		if code == 0 || c.bad {
			return t
		}
		a := &abbreviation{tag: c.uleb(), children: c.u8() != 0, fixed: true}
		for {
			attr := attribute{name: c.uleb(), form: c.uleb()}
			if attr.form == formImplicit {
				attr.implicit = c.sleb()
			}
			if attr.name == 0 && attr.form == 0 {
				break
			}
			if attributes++; c.bad || attributes > maxAttributes || !d.work(1) {
				return t
			}
			a.attrs = append(a.attrs, attr)
			size, fixed := fixedSize(attr.form, u)
			a.size += size
			a.fixed = a.fixed && fixed
		}
		switch {
		case code == uint64(len(t.low)):
			t.low = append(t.low, a)
		case t.high == nil:
			t.high = map[uint64]*abbreviation{code: a}
		default:
			t.high[code] = a
		}
		if code == last {
			return t
		}
	}
	return t
}

// tableOf is the whole table of a unit. Those used last are kept: a call's
// function may be described in another unit.
func (d *debugInfo) tableOf(u *unit) *abbreviations {
	if t, ok := d.tables.get(u.abbrev); ok {
		return t
	}
	t := d.abbreviations(u, 0)
	d.tables.put(u.abbrev, t, 1)
	return t
}

// skipAttributes goes behind an entry whose attributes are of no interest.
func (c *cursor) skipAttributes(a *abbreviation, u *unit) {
	if a.fixed {
		c.skip(a.size)
		return
	}
	for i := range a.attrs {
		if a.attrs[i].form != formImplicit {
			c.form(a.attrs[i].form, u)
		}
	}
}

// The tags and attributes that are of interest (DWARF 5, 7.5.4).
const (
	tagInlined    = 0x1d
	tagSubprogram = 0x2e

	atName        = 0x03
	atStmtList    = 0x10
	atLowPC       = 0x11
	atHighPC      = 0x12
	atCompDir     = 0x1b
	atOrigin      = 0x31
	atSpec        = 0x47
	atRanges      = 0x55
	atCallFile    = 0x58
	atCallLine    = 0x59
	atLinkage     = 0x6e
	atStrBase     = 0x72
	atAddrBase    = 0x73
	atRangesBase  = 0x74
	atMIPSLinkage = 0x2007
)

// entry is what an entry of the debug information says about a function.
type entry struct {
	name, linkage      value
	low, high, ranges  value
	origin             value // abstract_origin or specification
	callFile, callLine uint64
	stmtList, compDir  value
	strBase, addrBase  value
	rangesBase         value
}

// attributes reads an entry's attributes.
func (c *cursor) attributes(a *abbreviation, u *unit) (e entry) {
	for i := range a.attrs {
		attr := &a.attrs[i]
		var v value
		if attr.form == formImplicit {
			v = value{kindConst, uint64(attr.implicit)}
		} else {
			v = c.form(attr.form, u)
		}
		switch attr.name {
		case atName:
			e.name = v
		case atLinkage, atMIPSLinkage:
			e.linkage = v
		case atLowPC:
			e.low = v
		case atHighPC:
			e.high = v
		case atRanges:
			e.ranges = v
		case atOrigin, atSpec:
			if v.kind == kindRef {
				e.origin = v
			}
		case atCallFile:
			e.callFile = v.n
		case atCallLine:
			e.callLine = v.n
		case atStmtList:
			e.stmtList = v
		case atCompDir:
			e.compDir = v
		case atStrBase:
			e.strBase = v
		case atAddrBase:
			e.addrBase = v
		case atRangesBase:
			e.rangesBase = v
		}
	}
	return e
}
