package term

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/page"
)

// TestOutputThatIsNoTerminalIsNotBroken: it takes lines of any length, whatever COLUMNS
// says.
func TestOutputThatIsNoTerminalIsNotBroken(t *testing.T) {
	t.Setenv("COLUMNS", "40")
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	qt.Check(t, qt.Equals(LayoutFor(f).Width, 0))
	var b strings.Builder
	out := bufio.NewWriter(&b)
	LayoutFor(f).Write(out, 2, page.NoStyle, strings.Repeat("word ", 40))
	qt.Assert(t, qt.IsNil(out.Flush()))
	qt.Check(t, qt.Equals(strings.Count(b.String(), "\n"), 1))
}
