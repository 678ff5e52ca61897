package e2e

import (
	"fmt"
	"os"
	"strconv"
	"time"
)

// patience multiplies the time limits of waits. An emulated machine is 10 to 20
// times slower: TTMEM_TEST_PATIENCE says how much longer tests wait there. What a
// test asserts about time stays as it is.
var patience = func() time.Duration {
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

// eventually waits until something is so, and reports whether it was within the limit.
func eventually(limit time.Duration, so func() bool) bool {
	deadline := time.Now().Add(limit * patience)
	for !so() {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
	return true
}
