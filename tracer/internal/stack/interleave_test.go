package stack

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestInterleave(t *testing.T) {
	for _, test := range []struct {
		name string
		// native and python are calls, innermost first. Native: "E" is a call of the
		// evaluation loop, "i…" another call in the interpreter, and "a+b" two functions of
		// which the inner one was inlined. Python: "P!" is called by C.
		native, python string
		folded, all    string
	}{
		{"nothing", "", "", "", ""},
		{"no Python", "probed main start", "", "probed main start", "probed main start"},
		{"no native part", "", "f g! h!", "f g h", "f g h"},
		{"a loop for all", "probed icall E imain start", "f g h!", "probed f g h start", "probed icall E f g h imain start"},
		{
			"a loop for each", "probed E icall E icall E start", "f! g! h!",
			"probed f g h start", "probed E f icall E g icall E h start",
		},
		{
			"C between Python's", "probed E icall extension E imain start", "f g! h k!",
			"probed f g extension h k start", "probed E f g icall extension E h k imain start",
		},
		{
			"the probe is in the interpreter", "iprobe E start", "f!",
			"f start", "iprobe E f start",
		},
		{"nothing but the interpreter", "iprobe E imain", "f!", "f", "iprobe E f imain"},
		{
			"inlined functions", "in+probed E extra+start", "f!",
			"in probed f extra start", "in probed E f extra start",
		},
		{
			// the thread has not entered Python yet, or the walk could not continue
			"more loops than Python has entries", "probed E c E d E start", "f!",
			"probed f c d start", "probed E f c E d E start",
		},
		{"loops and no Python", "probed E c E start", "", "probed c start", "probed E c E start"},
		{
			// too deep to be unwound to the end
			"more entries than loops", "probed E c", "f! g! h k!",
			"probed f c g h k", "probed E f c g h k",
		},
		{
			// the Python part was cut: the last call's entry is missing
			"a last call that is no entry", "probed E c E d", "f! g",
			"probed f c g d", "probed E f c E g d",
		},
		{"calls that are no entries at all", "probed E c E d", "f g", "probed f g c d", "probed E f g c E d"},
		{"Python without a loop", "probed start", "f! g!", "probed start f g", "probed start f g"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var native []nativeCall
			var all []nativeCall // with the interpreter's own calls
			for _, name := range strings.Fields(test.native) {
				call := nativeCall{eval: name == "E", interpreter: name == "E" || name[0] == 'i' && !strings.Contains(name, "+")}
				var frames []event.Frame
				for _, f := range strings.Split(name, "+") {
					frames = append(frames, event.Frame{Kind: event.Native, Name: f})
				}
				call.shown = event.NewCall(frames)
				all = append(all, call)
				if call.interpreter {
					call.shown = nil
				}
				native = append(native, call)
			}
			var python []pythonCall
			for _, name := range strings.Fields(test.python) {
				name, entry := strings.CutSuffix(name, "!")
				python = append(python, pythonCall{event.NewCall([]event.Frame{{Kind: event.Python, Name: name}}), entry})
			}
			qt.Check(t, qt.Equals(names(interleave(native, python, false)), test.folded))
			qt.Check(t, qt.Equals(names(interleave(all, python, false)), test.folded))
			qt.Check(t, qt.Equals(names(interleave(all, python, true)), test.all))
		})
	}
}

// names returns the names of frames, and marks frames of the wrong kind.
func names(calls []*event.Call) string {
	var list []string
	var frames []event.Frame
	for _, call := range calls {
		frames = append(frames, call.Frames...)
	}
	for _, f := range frames {
		if python := len(f.Name) == 1 && f.Name >= "f" && f.Name <= "k"; python != (f.Kind == event.Python) {
			f.Name += "(" + f.Kind + ")"
		}
		list = append(list, f.Name)
	}
	return strings.Join(list, " ")
}
