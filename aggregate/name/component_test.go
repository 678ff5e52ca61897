package name

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func attentionStack() []event.Frame {
	return frames(native("ttnn::prim::matmul", "ttnn::matmul"),
		py("Attention.wq", "/srv/attention.py", 12), py("Attention.forward", "/srv/attention.py", 30),
		py("Layer3.forward", "/srv/model.py", 7), py("Layer3.forward", "/srv/model.py", 9), py("<module>", "/srv/run.py", 1))
}

func TestComponents(t *testing.T) {
	for name, test := range map[string]struct{ rules, want string }{
		"outermost first":            {"Attention\\.forward -> attention\nLayer(\\d+) -> layer $1\nAttention\\.(w\\w) -> $1", "layer 3/attention/wq"},
		"the first rule that fits":   {"Attention -> attention\nwq -> wq", "attention"},
		"a line of a file":           {`/srv/attention\.py:12 -> query`, "query"},
		"a native function":          {"^ttnn::matmul$ -> matmul", "matmul"},
		"named groups":               {`Layer(?P<n>\d) -> block ${n}x`, "block 3x"},
		"an arrow in the expression": {"a->b|Layer3 -> three", "three"},
		"comments and empty lines":   {"# layers\n\nLayer3 -> three", "three"},
		"none fits":                  {"Embedding -> embedding", ""},
		"a part that is empty":       {`(x?)Layer -> $1`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rules, err := ReadRules("rules", strings.NewReader(test.rules))
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(rules.Component(attentionStack()), test.want))
		})
	}
}

func TestBadRulesAreNamedByTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"a -> b\n\nc d":            `rules:3: no -> in "c d": a line is REGEXP -> COMPONENT`,
		"a ->":                     `rules:1: nothing before or after ->: .*`,
		"# x\n( -> b":              "rules:2: not a regular expression: missing closing \\): .*",
		"a(.) -> $2":               `rules:1: \$2 in the component, and a\(\.\) has 1 groups`,
		"a(.) -> $1_x":             `rules:1: \$1_x is not a group of a\(\.\): write \$\{1\} .*`,
		"# nothing":                "rules: no rules: .*",
		strings.Repeat("x", 1<<17): "rules:1: .*too long",
	} {
		_, err := ReadRules("rules", strings.NewReader(text))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}

func TestDefaultComponentIsUserFunctions(t *testing.T) {
	qt.Check(t, qt.Equals(DefaultComponent(attentionStack()), "Layer3.forward/Attention.forward/Attention.wq"))
	qt.Check(t, qt.Equals(DefaultComponent(nil), ""))
}
