package e2e

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// TestBesideOthers is the first of the parallel tests, which begin when all others have ended. From
// here on each test traces one program, and other packages may start theirs.
func TestBesideOthers(t *testing.T) {
	t.Parallel()
	qt.Check(t, qt.IsNil(rig.Beside()))
}
