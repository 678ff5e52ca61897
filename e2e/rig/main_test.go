package rig

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := Beside(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
