package tracetest

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// Patience multiplies the time limits of waits. An emulated machine is 10 to 20 times
// slower: TTMEM_TEST_PATIENCE sets the factor.
var Patience = func() time.Duration {
	text := os.Getenv("TTMEM_TEST_PATIENCE")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		fmt.Fprintf(os.Stderr, "TTMEM_TEST_PATIENCE is %q: it has to be a positive whole number\n", text)
		os.Exit(1)
	}
	return time.Duration(n)
}()

// Eventually waits for a condition, and reports whether it became true in time. Conditions that are
// expensive to check take a quarter of the time.
func Eventually(limit time.Duration, so func() bool) bool {
	for deadline := time.Now().Add(limit * Patience); ; {
		began := time.Now()
		if so() {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(max(20*time.Millisecond, 3*time.Since(began)))
	}
}
