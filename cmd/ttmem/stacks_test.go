package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestFlagsOfStacksAreCheckedEarly(t *testing.T) {
	for name, test := range map[string]struct{ args, says string }{
		"nothing":      {"-o f", ""},
		"all of them":  {"-o f --full-stacks", ""},
		"more of none": {"-o f --no-stacks --full-stacks", "--full-stacks needs call stacks: leave out --no-stacks"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkFlags("run", strings.Fields(test.args)...)
			if test.says == "" {
				qt.Check(t, qt.IsNil(err))
			} else {
				qt.Check(t, qt.ErrorMatches(err, test.says))
			}
		})
	}
}
