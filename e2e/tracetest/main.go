package tracetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"ttmem/e2e/rig"
)

// Beside is the main function of tests that start programs that others would trace, and trace none but
// their own.
func Beside(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.fuzz").Value.String() == "" { // else several processes fuzz beside each other, and none traces
		if err := rig.Beside(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(Run(m))
}

// Run runs the tests of the package in the current folder that the flag -releases selects, and returns the exit status.
func Run(m *testing.M) int {
	flag.Parse()
	pattern, err := releaseTests(".")
	if selected := flag.Lookup("test.run").Value; tested == older && selected.String() == "" {
		if err == nil {
			err = selected.Set(pattern)
		}
	} else if errors.Is(err, errNone) {
		err = nil
	}
	if err != nil { // also a test that the older releases would not have is found with any
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
