package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer"
)

func TestFlagsOfStacksAreCheckedEarly(t *testing.T) {
	for name, test := range map[string]struct{ args, says string }{
		"nothing":         {"", ""},
		"all of them":     {"--free-stacks --full-names --native-frames all", ""},
		"the default":     {"--native-frames folded", ""},
		"no such frames":  {"--native-frames some", `--native-frames: "some" is neither folded nor all`},
		"frees of none":   {"--no-stacks --free-stacks", "--free-stacks is about call stacks: leave out --no-stacks"},
		"names of none":   {"--no-stacks --full-names", "--full-names is about call stacks: leave out --no-stacks"},
		"which of none":   {"--no-stacks --native-frames all", "--native-frames is about call stacks: leave out --no-stacks"},
		"a graph of none": {"--no-stacks --flamegraph x", "--flamegraph shows call stacks: leave out --no-stacks"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFlags(newRun(), strings.Fields(test.args)...)
			if test.says == "" {
				qt.Check(t, qt.IsNil(err))
			} else {
				qt.Check(t, qt.ErrorMatches(err, test.says))
			}
		})
	}
}

func TestFlagsOfStacksReachTheTracer(t *testing.T) {
	var to tracer.Options
	o := stackOptions{ofFrees: true, fullNames: true, nativeFrames: allFrames}
	o.apply(&to)
	qt.Check(t, qt.DeepEquals(to, tracer.Options{FreeStacks: true, FullNames: true, AllFrames: true}))
}
