package cores

import (
	"cmp"
	"slices"
)

// FullestOf returns the core where these places, which do not overlap, and the buffers on single
// cores have the most bytes; of equal cores the first by rows.
func FullestOf(places []Place, load *Load) Core {
	if len(places) == 0 && len(load.cores) == 0 {
		return Core{}
	}
	if len(load.cores) == 0 && !slices.ContainsFunc(places, func(p Place) bool { return p.Set != places[0].Set }) {
		return slices.MinFunc(places[0].Set.cores, compareRows) // the case of most programs
	}
	sums := make(map[*Set]uint64) // most places are on one of a few sets
	for _, p := range places {
		sums[p.Set] += p.BytesPerCore()
	}
	var bytes [side][side]uint64 // by rows
	var has [side][side]bool
	for set, n := range sums {
		for _, c := range set.cores {
			bytes[c.Y][c.X] += n
			has[c.Y][c.X] = true
		}
	}
	for c, n := range load.cores {
		bytes[c.Y][c.X] += n
		has[c.Y][c.X] = true
	}
	var fullest Core
	found := false
	for y := range bytes {
		for x, n := range bytes[y] {
			if has[y][x] && (!found || n > bytes[fullest.Y][fullest.X]) {
				fullest, found = Core{uint16(x), uint16(y)}, true
			}
		}
	}
	return fullest
}

func compareRows(a, b Core) int { return cmp.Or(cmp.Compare(a.Y, b.Y), cmp.Compare(a.X, b.X)) }
