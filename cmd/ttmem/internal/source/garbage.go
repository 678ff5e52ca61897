package source

import (
	"os"
	"runtime/debug"
)

// tracingMemory is the memory beyond which a tracer collects garbage more often. All that a user may fill
// (package quota) fits; without a flood, a tracer takes a third.
const tracingMemory = 320 << 20

// BoundMemory is called before tracing begins.
func BoundMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(tracingMemory)
	}
}
