package term

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
)

// TestOutputThatIsNoTerminalIsNotBroken: it takes lines of any length, unless COLUMNS says
// otherwise.
func TestOutputThatIsNoTerminalIsNotBroken(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	for columns, want := range map[string]int{"": 1, "none": 1, "0": 1, "42": 5, "3": 6} {
		t.Setenv("COLUMNS", columns)
		var b strings.Builder
		out := bufio.NewWriter(&b)
		Format{}.LayoutFor(f).Write(out, 2, page.NoStyle, strings.Repeat("word ", 40))
		qt.Assert(t, qt.IsNil(out.Flush()))
		qt.Check(t, qt.Equals(strings.Count(b.String(), "\n"), want), qt.Commentf("COLUMNS=%s: %s", columns, b.String()))
	}
}
