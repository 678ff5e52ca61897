package alloc

import (
	"fmt"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// Cores writes the cores of a buffer on single cores.
func Cores(ranges []event.CoreRange) string {
	switch {
	case len(ranges) == 0:
		return "unknown cores"
	case len(ranges) == 1 && ranges[0].Cores() == 1:
		return fmt.Sprintf("core %d-%d", ranges[0].X0, ranges[0].Y0)
	}
	return "cores " + FormatRanges(ranges)
}

// FormatRanges writes rectangles of cores as tt-metal does.
func FormatRanges(ranges []event.CoreRange) string {
	return strings.Join(page.Each(ranges, func(r event.CoreRange) string {
		return fmt.Sprintf("[%d-%d - %d-%d]", r.X0, r.Y0, r.X1, r.Y1)
	}), " ")
}
