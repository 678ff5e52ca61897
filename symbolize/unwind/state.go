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

// state is the state of a frame between two instructions of its FDE.
type state struct {
	cfa CFA // SP, BP, an expression's, or Unsupported
	// byExpression distinguishes the two kinds of Unsupported
	byExpression bool
	bp           BPRule
	bpOffset     int16
	ra           place
	// moved: the caller's rsp is not the CFA
	moved bool
	// offset is added to the register; it survives an expression
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

// saved notes that a register of the caller is at CFA + offset.
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

// computed notes that a register of the caller is found in a way that a Rule cannot
// express: as a sum, or in another register.
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

// same notes that a register still has the caller's value.
func (s *state) same(reg uint64) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = Same, 0
	case regSP:
		s.moved = false // for rsp itself that is impossible: it is the CFA then
	case regRA:
		s.ra = elsewhere
	}
}

// undefined notes that a register of the caller is lost.
func (s *state) undefined(reg uint64) {
	switch reg {
	case regBP:
		s.bp, s.bpOffset = Lost, 0
	case regRA:
		s.ra = isUndefined
	}
}

// restore gives a register the rule that it has in another state.
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

// rule returns the state in the form of a row.
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
