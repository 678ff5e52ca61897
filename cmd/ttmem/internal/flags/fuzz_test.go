package flags

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// FuzzSize: what is printed for a size is that size again, rounded to a tenth of its unit.
func FuzzSize(f *testing.F) {
	for _, text := range []string{"0", "64KiB", " 1.5 gib", "1e3", "0x10", "inf", "nan", "-1", "1e-320TB", "1023.9999PiB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var size, again Size
		if size.Set(text) != nil {
			return
		}
		qt.Assert(t, qt.IsTrue(size >= 0 && size < 1<<60))
		if size > 0 && size < 1<<49 {
			qt.Assert(t, qt.IsNil(again.Set(size.String())), qt.Commentf("%s", size.String()))
			qt.Check(t, qt.IsTrue(max(again-size, size-again) <= size/20), qt.Commentf("%d, %d", size, again))
		}
	})
}
