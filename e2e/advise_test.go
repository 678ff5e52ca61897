package e2e

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// TestNothingIsAccused that is used again: weights, caches, states of the next iteration, and results that the host reads.
func TestNothingIsAccused(t *testing.T) {
	t.Parallel()
	clean, _ := adviceOf(t, "DRAM", "used_again.py")
	qt.Check(t, qt.HasLen(clean.Lines, 0), qt.Commentf("%+v", clean.Lines))
	dram, _ := adviceOf(t, "DRAM", "decode.py")
	qt.Check(t, qt.HasLen(dram.Lines, 0), qt.Commentf("%+v", dram.Lines))
}
