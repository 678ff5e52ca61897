package visualizer

import "ttmem/tracer/event"

// grid returns the columns and rows of the cores of a chip that have a bank of L1 each. known is
// false if programs used fewer: the grid is then what they used.
func (r *Report) grid(chip int) (g grid, known bool) {
	g = r.plan.grids[chip]
	return g, g.x*g.y > 0 && g.x*g.y == int(r.state.Capacity(chip, event.L1).Banks)
}

// writeDevices writes the chips. Figures that are not known are NULL.
func (r *Report) writeDevices() {
	for _, chip := range r.state.Totals().DeviceIDs() {
		l1, small := r.state.Capacity(chip, event.L1), r.state.Capacity(chip, event.L1Small)
		var columns, rows, computeColumns, computeRows, cores any
		g, known := r.grid(chip)
		if g.x > 0 {
			columns, rows = g.x, g.y
		}
		if known {
			computeColumns, computeRows, cores = columns, rows, g.x*g.y
		}
		// circular buffers may reach up to the end of L1_SMALL, which is above L1
		var base, size, total, limit any
		if l1.Base > 0 {
			end := max(l1.Base+l1.BytesPerBank, small.Base+small.BytesPerBank)
			base, size, total, limit = l1.Base, end, end*uint64(l1.Banks), end-l1.Base
		}
		r.db.insert("devices", chip, rows, columns, computeRows, computeColumns,
			size, int(l1.Banks), l1.BytesPerBank, 0, base, nil, cores, nil, total, nil, l1.Total(), l1.Total(), limit, 0)
	}
}
