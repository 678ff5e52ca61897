package layout

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// Two sources agree on where a Buffer has its addresses by core, in all forms of Buffer.
func TestPerCoreBuffers(t *testing.T) {
	for release, want := range map[string][2]Chain{
		"0.68.0": {},
		"0.72.0": {{0x1c0}, {0x1c8}},
		"0.76.0": {{0x1c8}, {0x1d0}},
		"0.81.1": {{0x10, 0x1b8}, {0x10, 0x1c0}},
	} {
		t.Run(release, func(t *testing.T) {
			f, err := os.Open(library(t, release))
			qt.Assert(t, qt.IsNil(err))
			defer f.Close()
			info, err := f.Stat()
			qt.Assert(t, qt.IsNil(err))
			e, err := symbolize.New(f, info.Size())
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			d, err := derive(e)
			qt.Assert(t, qt.IsNil(err))
			for i, name := range []string{"per_core_allocation_", "per_core_addresses_"} {
				qt.Check(t, qt.DeepEquals(d.layout.Fields[name], want[i]))
				if want[i] != nil {
					qt.Check(t, qt.Equals(d.agreed[name], 2))
				}
			}
		})
	}
}
