package page

import (
	"strings"

	"ttmem/tracer/event"
)

// KernelKind writes what kernels are for; "" for those of operations.
func KernelKind(k event.KernelKind) string { return strings.ReplaceAll(k.String(), "_", " ") }

// TextBytes writes the size of kernels on a core. tt-metal does not report that of the runtime's kernels
// on all types of cores: then it is 0.
func TextBytes(k event.KernelKind, n uint64) string {
	if k != event.WorkerKernels && n == 0 {
		return "not known"
	}
	return KiB(n)
}
