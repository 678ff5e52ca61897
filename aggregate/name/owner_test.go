package name

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestFoldOwner(t *testing.T) {
	for path, want := range map[string]string{
		"model.layers[3].attention.wq": "model.layers[*].attention.wq",
		"cache['k'][17]":               "cache['k'][*]",
		"local kept of main()":         "local kept of main()",
		"":                             "",
	} {
		qt.Check(t, qt.Equals(FoldOwner(path), want))
	}
}

// TestContainers: a container has the keys that are the same in all paths.
func TestContainers(t *testing.T) {
	for name, test := range map[string]struct {
		paths []string
		want  string
	}{
		"one path":          {[]string{"m.debug[3]"}, "m.debug[3]"},
		"a list":            {[]string{"m.debug[3]", "m.debug[4]"}, "m.debug[…]"},
		"one layer's":       {[]string{"m.layers[2].debug[0]", "m.layers[2].debug[1]"}, "m.layers[2].debug[…]"},
		"a list in a dict":  {[]string{"log['act'][0]", "log['act'][1]"}, "log['act'][…]"},
		"dicts in a list":   {[]string{"log[0]['act']", "log[1]['act']"}, "log[…]['act']"},
		"keys with quotes":  {[]string{`d['it\'s [1]']`, `d['\\']`}, "d[…]"},
		"unknown keys":      {[]string{"d[…].t", "d[…].t"}, "d[…].t"},
		"negative keys":     {[]string{"d[-1]", "d[1]"}, "d[…]"},
		"a broken key":      {[]string{"d['a"}, "d['a"},
		"of a local":        {[]string{"local x of f()[1]", "local x of f()[2]"}, "local x of f()[…]"},
		"three that differ": {[]string{"a[1][1]", "a[1][2]", "a[2][1]"}, "a[…][…]"},
	} {
		t.Run(name, func(t *testing.T) {
			c := ContainerOf(test.paths[0])
			for _, path := range test.paths[1:] {
				other := ContainerOf(path)
				qt.Assert(t, qt.Equals(other.Shape(), c.Shape()))
				c.Add(other)
			}
			qt.Check(t, qt.Equals(c.String(), test.want))
			for _, path := range test.paths {
				qt.Check(t, qt.IsTrue(c.Has(ContainerOf(path))))
			}
		})
	}
	c := ContainerOf("m.debug['a'][0]")
	c.Add(ContainerOf("m.debug['a'][1]"))
	qt.Check(t, qt.IsFalse(c.Has(ContainerOf("m.debug['b'][0]"))))
}
