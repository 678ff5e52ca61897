package output

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// TestLinesAreWrittenSoon: whoever follows a log does not wait for the next event.
func TestLinesAreWrittenSoon(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	out := NewLines(f, false)
	out.Write([]byte("one\n"))
	deadline := time.Now().Add(time.Minute)
	for {
		text, err := os.ReadFile(f.Name())
		qt.Assert(t, qt.IsNil(err))
		if string(text) == "one\n" {
			return
		}
		qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)))
		time.Sleep(time.Millisecond)
	}
}
