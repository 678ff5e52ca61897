package overlap

import (
	"cmp"

	"ttmem/aggregate/memory"
)

// A Region is the addresses of one region of a chip, of buffers of several allocators. What they assigned
// twice is in use once.
type Region struct {
	cover cover
	// Twice is how many bytes of each bank were assigned again, and Taken what CountOnce therefore took the
	// last time.
	Twice uint64
	Taken memory.Tally
	banks uint16 // of its buffers
}

// Insert adds the addresses of a buffer in each of a number of banks, and returns how many of its bytes
// others have, too.
func (r *Region) Insert(start, end uint64, banks uint16) (twice uint64) {
	r.banks = max(r.banks, banks)
	twice = end - start - r.cover.insert(start, end)
	r.Twice += twice
	return twice
}

// Remove undoes Insert.
func (r *Region) Remove(start, end uint64) { r.Twice -= end - start - r.cover.remove(start, end) }

// CountOnce takes what was assigned twice from a tally of the buffers. banks is the number of banks; 0 if
// it is not known.
func (r *Region) CountOnce(t *memory.Tally, banks uint32) {
	t.Add(r.Taken)
	r.Taken = memory.Tally{PerBank: r.Twice}
	r.Taken.Bytes = r.Twice * uint64(cmp.Or(banks, uint32(r.banks)))
	t.Add(r.Taken.Negative())
}
