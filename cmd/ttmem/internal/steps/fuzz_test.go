package steps

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/service"
)

// FuzzStep: the name of a test may be anything, and that of its mark is one that the service
// takes.
func FuzzStep(f *testing.F) {
	f.Add("begin tests/test_model.py::test_forward[日本-\x1b]", false)
	f.Add("end", true)
	f.Add("end", false) // again
	f.Add("end 1", true)
	f.Add("end 18446744073709551616", true)
	f.Add("peaks", true)
	f.Add("reset", false)
	f.Add("begin \u202e", false)
	f.Fuzz(func(t *testing.T, line string, running bool) {
		var r reader
		_, err := r.parse("begin test")
		qt.Assert(t, qt.IsNil(err))
		if !running {
			_, err = r.parse("end")
			qt.Assert(t, qt.IsNil(err))
		}
		request, err := r.parse(line)
		if err != nil {
			return
		}
		qt.Check(t, qt.IsNil(service.CheckMark(request.mark())), qt.Commentf("%q", request.mark()))
	})
}
