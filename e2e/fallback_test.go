package e2e

import (
	"strings"
	"testing"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/kernel"
)

// Totals, stacks and late attaches are right on kernels that lack features. Here features
// are disabled; `make vmtest` boots kernels that really lack them.
func TestFallbacks(t *testing.T) {
	without := []string{strings.Join(kernel.Optional, ",")}
	if *tracetest.Long {
		without = append(without, kernel.Optional...)
	}
	for _, names := range without {
		t.Run(names, func(t *testing.T) {
			t.Setenv(kernel.WithoutVariable, names)
			t.Run("equality", func(t *testing.T) {
				assertMixEqual(t, traceRun(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "mix.py")))
			})
			if *tracetest.Long {
				t.Run("stacks", func(t *testing.T) { assertStacksOfTTNN(t, "0.81.1", "3.10") })
			}
			t.Run("late attach", func(t *testing.T) { assertLateEqual(t, "0.81.1", "n150", 1) })
		})
	}
}
