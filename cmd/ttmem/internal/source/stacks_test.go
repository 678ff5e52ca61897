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

// TestOwnersNever: a service is not asked for owners by who wants none, not even which ones it would search.
func TestOwnersNever(t *testing.T) {
	for _, owners := range []string{"", "never"} {
		o := Stacks{owners: owners}
		qt.Check(t, qt.Equals(o.ownersBy(nil, func(text string) { t.Error(text) }), ""))
	}
}
