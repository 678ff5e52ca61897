package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestMarksAtCallsAreNotOfAService(t *testing.T) {
	err := execute("leaks", "-p", "1", "--socket", t.TempDir()+"/ttmem.sock", "--mark-at", "f")
	qt.Check(t, qt.ErrorMatches(err, "--mark-at: the service places no probes for a user: leave out --socket, and trace as root"))
}
