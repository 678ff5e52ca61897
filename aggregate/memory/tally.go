package memory

import "ttmem/tracer/event"

// A Tally is an Amount of bytes of all banks or cores, with the sum of the sizes and of the
// bytes of each bank.
type Tally struct {
	Amount
	Size, PerBank uint64
}

// Add adds another tally.
func (t *Tally) Add(b Tally) {
	t.Amount.Add(b.Amount)
	t.Size += b.Size
	t.PerBank += b.PerBank
}

// Negative returns a tally that cancels this one when it is added, because numbers wrap around.
func (t Tally) Negative() Tally {
	return Tally{Amount{Count: -t.Count, Bytes: -t.Bytes}, -t.Size, -t.PerBank}
}

// On returns the tally on a number of chips together.
func (t Tally) On(chips int) Tally {
	n := uint64(chips)
	return Tally{Amount{Count: t.Count, Bytes: t.Bytes * n}, t.Size * n, t.PerBank * n}
}

// Counts returns the bytes that a tally of buffers adds to a pool.
func (t *Tally) Counts(region event.Region) uint64 {
	if region == event.L1 {
		return t.PerBank
	}
	return t.Bytes
}
