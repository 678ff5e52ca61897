package lines

import (
	"bytes"
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// FuzzLines: whatever the debug information is, names come, at the least those of the symbol
// table. The fuzzer does not see what the process that reads the debug information executes.
func FuzzLines(f *testing.F) {
	for _, file := range seeds(f) {
		b, err := os.ReadFile(file)
		qt.Assert(f, qt.IsNil(err))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
		if err != nil || !e.HasDebugInfo() {
			return
		}
		named := 0
		for _, s := range e.WithPrefix("") {
			if _, ok := e.Function(s.Addr + s.Size/2); ok {
				named = 1
			}
		}
		qt.Check(t, qt.IsTrue(resolve(t, b) >= named))
	})
}
