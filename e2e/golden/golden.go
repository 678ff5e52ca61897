// Package golden compares what tests print with files of testdata.
package golden

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// Check compares with a file of testdata; TTMEM_UPDATE_GOLDEN=1 writes it.
func Check(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("TTMEM_UPDATE_GOLDEN") != "" {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(got), 0o644)))
	}
	want, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(got, string(want)))
}
