package main

import (
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/service"
)

// TestDurationBeginsWithThePresentState: a busy service may take longer to send it.
func TestDurationBeginsWithThePresentState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var asked atomic.Int32
	serveWith(t, path, sharedHost(anna), service.Options{Version: "1", Reading: func() bool { return asked.Add(1) < 5 }})
	out, errs, status := runOnStreams(t, false, []string{"peak", "--duration", "1ns", "--json", "--socket", path})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	qt.Check(t, qt.StringContains(out, `"region":"DRAM"`))
	qt.Check(t, qt.IsTrue(asked.Load() >= 5))
}
