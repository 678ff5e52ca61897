package page

import (
	"strings"

	"ttmem/tracer/event"
)

// KernelKind writes what kernels are for; "" for those of operations.
func KernelKind(k event.KernelKind) string { return strings.ReplaceAll(k.String(), "_", " ") }

// TextBytes writes the size of a program's kernels on a core. It is 0 only if tt-metal does not report it:
// that of the runtime's kernels on some types of cores, and of all kernels on the mock device of some
// releases.
func TextBytes(n uint64) string {
	if n == 0 {
		return "not known"
	}
	return Bytes(n)
}
