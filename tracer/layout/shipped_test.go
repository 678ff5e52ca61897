package layout

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
)

// A library without .symtab, or without section headers, has the layout of the whole one.
func TestSymbolsStripped(t *testing.T) {
	all := func(string) bool { return true }
	for _, release := range few {
		t.Run(release, func(t *testing.T) {
			whole := image(t, release)
			want, err := Derive(open(t, whole))
			qt.Assert(t, qt.IsNil(err))
			for name, b := range map[string][]byte{
				"no .symtab": tracetest.Stripped(t, whole, all), "no section headers": tracetest.Unsectioned(whole),
			} {
				got, err := Derive(open(t, b))
				qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", name))
				qt.Check(t, qt.DeepEquals(got.Fields, want.Fields), qt.Commentf("%s", name))
				for probe, p := range want.Probes {
					qt.Check(t, qt.Equals(got.Probes[probe].ProbeAddr, p.ProbeAddr), qt.Commentf("%s: %s", name, probe))
				}
				qt.Check(t, qt.DeepEquals(got.Exceptions, want.Exceptions), qt.Commentf("%s", name))
				qt.Check(t, qt.DeepEquals(got.Missing, want.Missing), qt.Commentf("%s", name))
			}
		})
	}
}

// A library that exports nothing of tt-metal is recognized by the names of its types, and one that exports a part of it
// says what is missing.
func TestExportsStripped(t *testing.T) {
	for _, release := range few {
		whole := image(t, release)
		for name, exports := range map[string]func(string) bool{
			"nothing":             func(string) bool { return false },
			"nothing of tt-metal": func(name string) bool { return !strings.Contains(name, "8tt_metal") },
		} {
			b := tracetest.Stripped(t, whole, exports)
			for _, b := range [][]byte{b, tracetest.Unsectioned(b)} {
				_, err := Derive(open(t, b))
				qt.Check(t, qt.ErrorIs(err, ErrStripped), qt.Commentf("%s: %s", release, name))
			}
		}
		const hidden = "13allocate_implE"
		l, err := Derive(open(t, tracetest.Stripped(t, whole, func(name string) bool { return !strings.Contains(name, hidden) })))
		qt.Assert(t, qt.IsNil(err))
		i := slices.IndexFunc(l.Missing, func(m Missing) bool { return m.Name == "buffer_allocate" })
		qt.Assert(t, qt.IsTrue(i >= 0), qt.Commentf("%s", release))
		qt.Check(t, qt.StringContains(l.Missing[i].Why, "allocate_impl"))
	}
}
