package page

import "ttmem/tracer/event"

// A Span is the part of a recording that a document is about. All of it is left out.
type Span struct {
	FromNs uint64 `json:"from_ns,omitempty" wall:"from_wall_ns"`
	ToNs   uint64 `json:"to_ns,omitempty" wall:"to_wall_ns"`
	// Within is the function whose calls alone count.
	Within string `json:"within,omitempty"`
}

// Rectangles are cores as documents have them: x0, y0, x1, y1.
func Rectangles(cores []event.CoreRange) [][4]uint16 {
	if len(cores) == 0 {
		return nil // without memory: a list may have a million
	}
	list := make([][4]uint16, 0, len(cores))
	for _, c := range cores {
		list = append(list, [4]uint16{c.X0, c.Y0, c.X1, c.Y1})
	}
	return list
}
