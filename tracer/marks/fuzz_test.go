package marks

import (
	"bytes"
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/symbolize"
)

// FuzzFunctionsNamed: probes are placed in the code of a file, whatever its symbols claim.
func FuzzFunctionsNamed(f *testing.F) {
	library, err := os.ReadFile("../../symbolize/lines/testdata/dwarf/gcc5.so")
	qt.Assert(f, qt.IsNil(err))
	f.Add(library, "run(int)")
	f.Add(library, "_Z4sinki")
	f.Add(library, "plain")
	f.Fuzz(func(t *testing.T, file []byte, name string) {
		e, err := symbolize.New(bytes.NewReader(file), int64(len(file)))
		if err != nil {
			return
		}
		fuzztest.Bounded(t, len(file)+len(name), 10_000, func() {
			offsets, numbers := functionsNamed(e, []string{name, "sink"})
			qt.Check(t, qt.Equals(len(offsets), len(numbers)))
			qt.Check(t, qt.IsTrue(len(offsets) <= 2*maxMarkedFunctions))
			for _, offset := range offsets {
				qt.Check(t, qt.IsTrue(offset < uint64(len(file))))
			}
		})
	})
}
