package unwind

// The registers that matter, by the numbers of the x86-64 psABI.
const (
	regBP = 6
	regSP = 7
	regRA = 16 // the return address
)

// place says where the return address is.
type place uint8

const (
	elsewhere   place = iota // or not said
	belowCFA                 // at CFA - 8
	isUndefined              // there is no caller
)

// state is what is known of a frame between two instructions of its FDE.
type state struct {
	cfa CFA // SP, BP, an expression's, or Unsupported
	// byExpression tells the two kinds of Unsupported apart
	byExpression bool
	bp           BPRule
	bpOffset     int16
	ra           place
	// moved says that the caller's rsp is not the CFA
	moved bool
	// offset is what to add to the register; it outlives an expression
	offset int64
	// packed is the CFAOffset of an expression
	packed int32
}

// setRegister makes the CFA relative to a register.
func (s *state) setRegister(reg uint64) {
	s.byExpression = false
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
		s.cfa, s.byExpression = Unsupported, true
	case cfa == SP || cfa == BP:
		s.cfa, s.offset = cfa, n
	default:
		s.cfa, s.packed = cfa, int32(n)
	}
}

// saved says that a register of the caller is at CFA + offset.
func (s *state) saved(reg uint64, offset int64) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = AtCFA, int16(offset)
		if offset != int64(s.bpOffset) {
			s.bp, s.bpOffset = Lost, 0
		}
	case regSP:
		s.moved = true
	case regRA:
		s.ra = elsewhere
		if offset == -8 {
			s.ra = belowCFA
		}
	}
}

// computed says that a register of the caller is found in a way that a Rule
// cannot say: as a sum, in another register.
func (s *state) computed(reg uint64) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = Lost, 0
	case regSP:
		s.moved = true
	case regRA:
		s.ra = elsewhere
	}
}

// same says that a register is the caller's still.
func (s *state) same(reg uint64) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = Same, 0
	case regSP:
		s.moved = false // rsp itself cannot be meant: it is the CFA then
	case regRA:
		s.ra = elsewhere
	}
}

// undefined says that a register of the caller is lost.
func (s *state) undefined(reg uint64) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = Lost, 0
	case regRA:
		s.ra = isUndefined
	}
}

// restore gives a register the rule that it had in another state.
func (s *state) restore(reg uint64, initial *state) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = initial.bp, initial.bpOffset
	case regSP:
		s.moved = initial.moved
	case regRA:
		s.ra = initial.ra
	}
}

// rule is the state as a row has it.
func (s *state) rule(skipped *Skipped) Rule {
	r := Rule{CFA: s.cfa, BP: s.bp, BPOffset: s.bpOffset}
	switch {
	case s.ra == isUndefined:
		return Rule{CFA: End}
	case s.ra == elsewhere || s.moved:
		skipped.ReturnAddresses++
		return unsupported
	case s.cfa == Unsupported && s.byExpression:
		skipped.Expressions++
		return unsupported
	case s.cfa == Unsupported:
		skipped.Registers++
		return unsupported
	case s.cfa == SP || s.cfa == BP:
		r.CFAOffset = int32(s.offset)
		if s.offset != int64(r.CFAOffset) {
			skipped.Offsets++
			return unsupported
		}
	default:
		r.CFAOffset = s.packed
	}
	return r
}
