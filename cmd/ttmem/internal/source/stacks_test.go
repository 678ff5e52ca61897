package source

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer"
)

func TestFlagsOfStacksReachTheTracer(t *testing.T) {
	var to tracer.Options
	o := Stacks{full: true}
	o.Apply(&to)
	qt.Check(t, qt.DeepEquals(to, tracer.Options{FreeStacks: true, FullNames: true, AllFrames: true}))
}
