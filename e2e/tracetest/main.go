package tracetest

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"ttmem/e2e/rig"
)

// Alone is the main function of tests that trace the host.
func Alone(m *testing.M) { run(m, rig.Alone) }

// Beside is the main function of tests that start programs that others would trace, and trace none but
// their own.
func Beside(m *testing.M) { run(m, rig.Beside) }

func run(m *testing.M, wait func() error) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" { // else several processes fuzz beside each other, and none traces
		if err := wait(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}
