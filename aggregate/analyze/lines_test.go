package analyze

import (
	"maps"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A called is a line of forward that calls an operation, which allocated so many bytes.
type called struct {
	line  int
	op    string
	bytes uint64
}

func sitesOf(list []called) (sites []Part) {
	for _, one := range list {
		frames := []event.Frame{
			{Kind: event.Native, Name: "func_create<ttnn." + one.op + ">"},
			{Kind: event.Python, Name: "forward", File: "/a/model.py", Line: one.line},
		}
		if one.op == "" {
			frames = frames[1:]
		}
		sites = append(sites, Part{SiteAmount: memory.SiteAmount{Site: memory.Site{Stack: event.StackOf(frames)}, Amount: memory.Amount{Count: 1, Bytes: one.bytes}}})
	}
	return sites
}

func TestLinesAreMatchedInOrder(t *testing.T) {
	for name, test := range map[string]struct {
		a, b []called
		want map[int]int
	}{
		"the same":          {[]called{{10, "add", 1}, {12, "add", 2}}, []called{{10, "add", 1}, {12, "add", 2}}, map[int]int{10: 10, 12: 12}},
		"moved":             {[]called{{10, "add", 1}, {12, "add", 1}}, []called{{12, "add", 1}, {14, "add", 1}}, map[int]int{10: 12, 12: 14}},
		"one is new":        {[]called{{10, "add", 1}, {12, "add", 2}}, []called{{10, "add", 1}, {11, "add", 1}, {13, "add", 2}}, map[int]int{10: 10, 12: 13}},
		"one is gone":       {[]called{{10, "add", 1}, {12, "add", 2}, {14, "add", 3}}, []called{{10, "add", 1}, {12, "add", 3}}, map[int]int{10: 10, 14: 12}},
		"more and moved":    {[]called{{10, "add", 1}, {12, "add", 1}, {14, "add", 1}}, []called{{12, "add", 1}, {14, "add", 1}, {16, "add", 1}, {18, "add", 1}}, map[int]int{10: 12, 12: 14, 14: 16}},
		"another operation": {[]called{{10, "add", 1}, {12, "mul", 1}}, []called{{10, "add", 1}, {12, "exp", 1}}, map[int]int{10: 10}},
		"by operation":      {[]called{{10, "add", 1}, {12, "mul", 1}}, []called{{11, "exp", 1}, {13, "add", 1}, {14, "log", 1}, {15, "mul", 1}}, map[int]int{10: 13, 12: 15}},
		"not known":         {[]called{{10, "", 1}}, []called{{15, "mul", 1}}, map[int]int{10: 15}},
	} {
		t.Run(name, func(t *testing.T) {
			lines := MatchLines(sitesOf(test.a), sitesOf(test.b))
			qt.Check(t, qt.DeepEquals(lines[function{"model.py", "forward"}], test.want))
		})
	}
}

// TestALineThatIsGoneIsNoOther: it may have the number of another one.
func TestALineThatIsGoneIsNoOther(t *testing.T) {
	lines := MatchLines(sitesOf([]called{{10, "add", 1}, {12, "mul", 1}}), sitesOf([]called{{12, "add", 1}}))
	qt.Check(t, qt.Equals(lines.Of(name.Call{Function: "forward", File: "/b/model.py", Line: 10}), 12))
	qt.Check(t, qt.Equals(lines.Of(name.Call{Function: "forward", File: "/b/model.py", Line: 12}), -12))
	qt.Check(t, qt.Equals(lines.Of(name.Call{Function: "other", File: "/b/model.py", Line: 12}), -12))
}

// TestManyLinesAreMatchedByNumber: the cost is bounded.
func TestManyLinesAreMatchedByNumber(t *testing.T) {
	many := make(map[int]*callingLine)
	for line := range 2000 {
		many[line] = &callingLine{unknown: true}
	}
	other := maps.Clone(many)
	delete(other, 7)
	want := make(map[int]int)
	for line := range other {
		want[line] = line
	}
	qt.Check(t, qt.DeepEquals(align(many, other), want))
}
