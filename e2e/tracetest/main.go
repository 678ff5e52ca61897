package tracetest

import (
	"fmt"
	"os"
	"testing"

	"ttmem/e2e/rig"
)

// Alone is the main function of tests that trace, or start programs that others would trace.
func Alone(m *testing.M) {
	if err := rig.Alone(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
