package unwind

// The call frame instructions. The first three have an operand in the low six bits.
const (
	cfaAdvance = 0x40
	cfaOffset  = 0x80
	cfaRestore = 0xc0

	cfaNop               = 0x00
	cfaSetLoc            = 0x01
	cfaAdvance1          = 0x02
	cfaAdvance2          = 0x03
	cfaAdvance4          = 0x04
	cfaOffsetExtended    = 0x05
	cfaRestoreExtended   = 0x06
	cfaUndefined         = 0x07
	cfaSameValue         = 0x08
	cfaRegister          = 0x09
	cfaRememberState     = 0x0a
	cfaRestoreState      = 0x0b
	cfaDefCFA            = 0x0c
	cfaDefCFARegister    = 0x0d
	cfaDefCFAOffset      = 0x0e
	cfaDefCFAExpression  = 0x0f
	cfaExpression        = 0x10
	cfaOffsetExtendedSF  = 0x11
	cfaDefCFASF          = 0x12
	cfaDefCFAOffsetSF    = 0x13
	cfaValOffset         = 0x14
	cfaValOffsetSF       = 0x15
	cfaValExpression     = 0x16
	cfaArgsSize          = 0x2e // GNU: size of a call's arguments
	cfaNegOffsetExtended = 0x2f // GNU: from old compilers
)

// maxRemembered bounds the nested states of an FDE; compilers nest none.
const maxRemembered = 64

// maxFactored bounds an operand that is multiplied by a factor of the CIE, and maxFactor
// that factor, so that nothing overflows.
const (
	maxFactored = 1 << 40
	maxFactor   = 1 << 16
)

// machine runs the instructions of CIEs and FDEs.
type machine struct {
	frames     *frames
	remembered [maxRemembered]state
}

// begin runs the instructions of a CIE, which give the state at the start of a function.
// They must not change the address.
func (m *machine) begin(k *cie, c cursor) bool {
	k.initial.cfa = Unsupported
	depth := 0
	for c.more() {
		op := c.u8()
		if op>>6 == cfaAdvance>>6 || op >= cfaSetLoc && op <= cfaAdvance4 || op == cfaRestoreExtended || op>>6 == cfaRestore>>6 {
			return false
		}
		m.do(&c, op, k, &k.initial, &depth)
	}
	return !c.bad
}

// run runs the instructions of an FDE and adds a row for each advance.
func (m *machine) run(out *rows, k *cie, f *fde) {
	if k.signal {
		out.put(f.start, Rule{CFA: Signal})
		return
	}
	c := cursor{b: m.frames.data[:f.codeEnd], at: int(f.code)}
	now, loc, depth := k.initial, f.start, 0
	for c.more() {
		op := c.u8()
		var advance uint64
		switch {
		case op>>6 == cfaAdvance>>6:
			advance = uint64(op & 0x3f)
		case op == cfaAdvance1:
			advance = uint64(c.u8())
		case op == cfaAdvance2:
			advance = uint64(c.u16())
		case op == cfaAdvance4:
			advance = uint64(c.u32())
		case op == cfaSetLoc:
			to := c.pointer(k.encoding, m.frames.addr, m.frames.hdr)
			if to < loc {
				c.fail()
			} else if to > loc && !c.bad {
				out.put(loc, now.rule())
				if to >= f.end {
					return
				}
				loc = to
			}
			continue
		default:
			m.do(&c, op, k, &now, &depth)
			continue
		}
		if c.bad {
			break
		}
		if advance *= k.codeFactor; advance > 0 {
			out.put(loc, now.rule())
			if advance >= f.end-loc {
				return
			}
			loc += advance
		}
	}
	if c.bad {
		out.put(loc, unsupported)
		return
	}
	out.put(loc, now.rule())
}

// do executes an instruction that does not change the address.
func (m *machine) do(c *cursor, op uint8, k *cie, s *state, depth *int) {
	switch op >> 6 {
	case cfaOffset >> 6:
		s.set(uint64(op&0x3f), savedAt(k.factored(c, int64(c.uleb()))))
		return
	case cfaRestore >> 6:
		s.set(uint64(op&0x3f), k.initial.registers)
		return
	}
	switch op {
	case cfaNop:
	case cfaOffsetExtended:
		s.set(c.uleb(), savedAt(k.factored(c, int64(c.uleb()))))
	case cfaOffsetExtendedSF:
		s.set(c.uleb(), savedAt(k.factored(c, c.sleb())))
	case cfaNegOffsetExtended:
		s.set(c.uleb(), savedAt(-k.factored(c, int64(c.uleb()))))
	case cfaRestoreExtended:
		s.set(c.uleb(), k.initial.registers)
	case cfaUndefined:
		s.set(c.uleb(), lost)
	case cfaSameValue:
		s.set(c.uleb(), registers{})
	case cfaRegister:
		s.set(c.uleb(), computed)
		c.uleb()
	case cfaValOffset, cfaValOffsetSF:
		s.set(c.uleb(), computed)
		c.uleb() // for a signed one, the same length
	case cfaValExpression:
		s.set(c.uleb(), computed)
		c.take(c.uleb())
	case cfaExpression:
		reg := c.uleb()
		s.set(reg, computed)
		if offset, ok := parseBP(c.take(c.uleb())); ok && reg == regBP {
			s.bp, s.bpOffset = AtBP, offset
		}
	case cfaDefCFA:
		s.setRegister(c.uleb())
		s.offset = int64(c.uleb())
	case cfaDefCFASF:
		s.setRegister(c.uleb())
		s.offset = k.factored(c, c.sleb())
	case cfaDefCFARegister:
		s.setRegister(c.uleb())
	case cfaDefCFAOffset:
		s.offset = int64(c.uleb())
	case cfaDefCFAOffsetSF:
		s.offset = k.factored(c, c.sleb())
	case cfaDefCFAExpression:
		s.setExpression(c.take(c.uleb()))
	case cfaRememberState:
		if *depth == maxRemembered {
			c.fail()
			return
		}
		m.remembered[*depth] = *s
		*depth++
	case cfaRestoreState:
		if *depth == 0 {
			c.fail()
			return
		}
		*depth--
		*s = m.remembered[*depth]
	case cfaArgsSize:
		c.uleb()
	default:
		c.fail()
	}
}

// factored multiplies an offset by the CIE's factor.
func (k *cie) factored(c *cursor, n int64) int64 {
	if n > maxFactored || n < -maxFactored {
		c.fail()
		return 0
	}
	return n * k.dataFactor
}
