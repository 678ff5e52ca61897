package diagnosis

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/doctor"
	"ttmem/tracer/kernel"
	"ttmem/tracer/layout"
)

// A stranger's odd library is no fault of the host.
func TestAnOddLibraryOfAProcessSaysNothingAboutTheHost(t *testing.T) {
	for _, ofHost := range []bool{true, false} {
		p := New([]kernel.Feature{{Name: "kernel", OK: true}}, ofHost, true)
		p.Libraries = []*doctor.Inspection{{Path: "/x/libtt_metal.so", Missing: []layout.Missing{{Name: "frees"}}}}
		qt.Check(t, qt.Equals(p.Works(), ofHost))
	}
}
