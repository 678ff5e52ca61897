package churn

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
)

// TestTemporaryIsFreedBeforeTwoMoreAreAllocated: at once, or when the next result replaces it, and not later.
func TestTemporaryIsFreedBeforeTwoMoreAreAllocated(t *testing.T) {
	var s Site
	s.Alloc(10)
	s.Free(10, 100) // at once
	s.Alloc(20)
	s.Alloc(30)
	s.Free(20, 100) // replaced by the next one
	qt.Check(t, qt.Equals(s.Amount, memory.Amount{Count: 2, Bytes: 200}))
	s.Alloc(40)
	s.Alloc(50)
	s.Free(30, 100) // kept for two
	qt.Check(t, qt.Equals(s.Amount, memory.Amount{Count: 2, Bytes: 200}))
	s.Free(40, 100)
	s.Free(50, 100) // the newest first, or the oldest: both are among the latest two
	qt.Check(t, qt.Equals(s.Amount, memory.Amount{Count: 4, Bytes: 400}))
}
