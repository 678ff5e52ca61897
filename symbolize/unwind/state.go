package unwind

// The registers that matter, by the numbers of the x86-64 psABI.
const (
	regBP = 6
	regSP = 7
	regRA = 16 // the return address
)

// place is the place of the return address.
type place uint8

const (
	elsewhere   place = iota // or unknown
	belowCFA                 // at CFA - 8
	isUndefined              // there is no caller
)

// registers are the rules for the caller's registers. In the zero value registers still have the
// caller's values, which is impossible for the return address.
type registers struct {
	bp       BPRule
	bpOffset int16
	ra       place
	// moved is true if the caller's rsp is not the CFA
	moved bool
}

// savedAt are the rules for registers that are at CFA + offset.
func savedAt(offset int64) registers {
	r := registers{bp: AtCFA, bpOffset: int16(offset), moved: true}
	if offset != int64(r.bpOffset) {
		r.bp, r.bpOffset = Lost, 0
	}
	if offset == -8 {
		r.ra = belowCFA
	}
	return r
}

var (
	// computed are the rules for registers that a Rule cannot express: sums, or values in another
	// register
	computed = registers{bp: Lost, moved: true}
	lost     = registers{bp: Lost, ra: isUndefined}
)

func (r *registers) set(reg uint64, to registers) {
	switch reg {
	case regBP:
		r.bp, r.bpOffset = to.bp, to.bpOffset
	case regSP:
		r.moved = to.moved
	case regRA:
		r.ra = to.ra
	}
}

// state is the state of a frame between two instructions of its FDE.
type state struct {
	registers
	cfa CFA // SP, BP, an expression's, or Unsupported
	// offset is added to the register; it survives an expression
	offset int64
	// packed is the CFAOffset of an expression
	packed int32
}

// setRegister makes the CFA relative to a register.
func (s *state) setRegister(reg uint64) {
	switch reg {
	case regSP:
		s.cfa = SP
	case regBP:
		s.cfa = BP
	default:
		s.cfa = Unsupported
	}
}

// setExpression makes the CFA an expression's value.
func (s *state) setExpression(b []byte) {
	cfa, n, ok := parseCFA(b)
	switch {
	case !ok:
		s.cfa = Unsupported
	case cfa == SP || cfa == BP:
		s.cfa, s.offset = cfa, n
	default:
		s.cfa, s.packed = cfa, int32(n)
	}
}

// rule returns the state in the form of a row.
func (s *state) rule() Rule {
	r := Rule{CFA: s.cfa, BP: s.bp, BPOffset: s.bpOffset, CFAOffset: s.packed}
	if s.cfa == SP || s.cfa == BP {
		r.CFAOffset = int32(s.offset)
		if s.offset != int64(r.CFAOffset) {
			r.CFA = Unsupported
		}
	}
	switch {
	case s.ra == isUndefined:
		return Rule{CFA: End}
	case s.ra == elsewhere || s.moved || r.CFA == Unsupported:
		return unsupported
	}
	return r
}
