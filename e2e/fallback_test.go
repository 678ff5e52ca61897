package e2e

import (
	"strings"
	"testing"

	"ttmem/tracer/kernel"
)

// TestFallbacks: totals, stacks and what a late attach finds are right on kernels that
// lack something. What this kernel has is ruled out; kernels that really lack it are
// booted by `make vmtest`.
func TestFallbacks(t *testing.T) {
	for _, names := range append(kernel.Optional(), strings.Join(kernel.Optional(), ",")) {
		t.Run(names, func(t *testing.T) {
			t.Setenv(kernel.WithoutVariable, names)
			t.Run("equality", func(t *testing.T) { assertMixEqual(t, "0.81.1", "3.10", "n150") })
			t.Run("stacks", func(t *testing.T) { assertStacksOfTTNN(t, "0.81.1", "3.10") })
			t.Run("late attach", func(t *testing.T) { assertLateEqual(t, "0.81.1", "n150", 1) })
		})
	}
}
