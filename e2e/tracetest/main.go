package tracetest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"ttmem/e2e/rig"
)

// Alone is the main function of tests that trace, or start programs that others would trace.
func Alone(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" { // else several processes fuzz beside each other, and none traces
		if err := rig.Alone(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
