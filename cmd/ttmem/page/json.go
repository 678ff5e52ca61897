package page

import "ttmem/tracer/event"

// Rectangles are cores as documents have them: x0, y0, x1, y1.
func Rectangles(cores []event.CoreRange) [][4]uint16 {
	list := make([][4]uint16, 0, len(cores))
	for _, c := range cores {
		list = append(list, [4]uint16{c.X0, c.Y0, c.X1, c.Y1})
	}
	return list
}
