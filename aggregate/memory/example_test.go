package memory_test

import (
	"fmt"

	"ttmem/aggregate/memory"
)

// Moments are in one of several spans, in ns.
func ExampleIntervals() {
	steps := memory.Intervals{{FromNs: 10, ToNs: 20}, {FromNs: 30, ToNs: 40}}
	fmt.Println(steps.Has(20), steps.Has(25), memory.Intervals(nil).Has(25))
	// Output:
	// true false true
}
