package pagetest

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/go-quicktest/qt"
)

// Golden compares with a file of testdata; TTMEM_UPDATE_GOLDEN=1 writes it.
func Golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if os.Getenv("TTMEM_UPDATE_GOLDEN") != "" {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(got), 0o644)))
	}
	want, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(got, string(want)))
}

var Colors = regexp.MustCompile("\x1b\\[[0-9;]*m")
