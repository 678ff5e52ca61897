package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestMarksAtCallsAreNotOfAService(t *testing.T) {
	c := newLeaks()
	c.SilenceErrors, c.SilenceUsage = true, true
	c.SetArgs([]string{"-p", "1", "--socket", t.TempDir() + "/ttmem.sock", "--mark-at", "f"})
	qt.Check(t, qt.ErrorMatches(c.Execute(), "--mark-at: the service places no probes of one's own: leave out --socket, and trace as root"))
}
