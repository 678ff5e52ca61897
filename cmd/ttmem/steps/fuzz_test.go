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
	f.Add("begin \u202e", false)
	f.Fuzz(func(t *testing.T, line string, running bool) {
		request, err := parseStep(line, "test", running)
		if err != nil {
			return
		}
		qt.Check(t, qt.IsTrue(request.ends || !running)) // a step ends before another one begins
		qt.Check(t, qt.IsNil(service.CheckMark(request.mark())), qt.Commentf("%q", request.mark()))
	})
}
