package name

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
)

// FuzzRules: errors name the line, and what is accepted can be used on any stack.
func FuzzRules(f *testing.F) {
	f.Add("model\\.py:\\d+ (\\w+) -> layer $1\n# a comment\n", "/home/user/model.py", "forward")
	f.Add("(?P<part>a+)+b -> ${part}/$0\n", "", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")
	f.Add("x -> $2", "x", "x")
	f.Add("a{1000}{1000} -> b", "a", "a")
	f.Fuzz(func(t *testing.T, text, file, function string) {
		stack := []event.Frame{
			{Kind: event.Native, Name: function, Module: file},
			{Kind: event.Python, Name: function, File: file, Line: 7},
		}
		fuzztest.Bounded(t, len(text)+len(file)+len(function), 10_000, func() {
			rules, err := ReadRules("rules", strings.NewReader(text))
			if err != nil {
				qt.Check(t, qt.IsTrue(strings.HasPrefix(err.Error(), "rules:")))
			} else {
				rules.Component(stack)
			}
			known, err := ReadSuppressions("known", strings.NewReader(text))
			if err != nil {
				qt.Check(t, qt.IsTrue(strings.HasPrefix(err.Error(), "known:")))
			} else {
				known.Match(stack)
			}
			_ = Of(stack).String() + DefaultComponent(stack)
			ClassOf(stack, event.DRAM)
			ResultOfOperation(stack)
		})
	})
}

// FuzzContainer: a container of one path is that path, and has it.
func FuzzContainer(f *testing.F) {
	f.Add("model.layers[3].cache['it\\'s'][…]", "model.layers[4].cache['k'][…]")
	f.Add("d['a", "d[1]]")
	f.Fuzz(func(t *testing.T, a, b string) {
		fuzztest.Bounded(t, len(a)+len(b), 10_000, func() {
			c, other := ContainerOf(a), ContainerOf(b)
			qt.Check(t, qt.Equals(c.String(), a))
			if c.Shape() == other.Shape() {
				c.Add(other)
				qt.Check(t, qt.IsTrue(c.Has(other) && c.Has(ContainerOf(a))))
			}
			FoldOwner(a)
		})
	})
}
