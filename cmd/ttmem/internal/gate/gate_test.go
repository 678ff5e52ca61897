package gate

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestAnnotations: GitHub's runner takes a line of the program each, escaped as its toolkit does: in the text only
// what ends a line, in values also what ends a value.
func TestAnnotations(t *testing.T) {
	list := []Finding{
		{"100% of\r\nDRAM: a, b", "/w/src/a,b:c%.py", 3},
		{Text: "no line"},
		{"outside", "/other/x.py", 4},
	}
	qt.Check(t, qt.DeepEquals(annotations("ttmem leaks", "all", list, "/w"), []string{
		"::error file=src/a%2Cb%3Ac%25.py,line=3,title=ttmem leaks::100%25 of%0D%0ADRAM: a, b",
		"::error file=/other/x.py,line=4,title=ttmem leaks::outside",
	}))
	qt.Check(t, qt.DeepEquals(annotations("ttmem diff", "DRAM\nhas grown", list[1:2], ""), []string{"::error title=ttmem diff::DRAM%0Ahas grown"}))
	for range 20 {
		list = append(list, list[0])
	}
	qt.Check(t, qt.HasLen(annotations("ttmem diff", "all", list, "/w"), mostAnnotations))
}

// TestJUnit: a parser reads back what was written, whatever is in a name.
func TestJUnit(t *testing.T) {
	for kind, want := range map[string][2]int{"": {0, 0}, "exceeded": {1, 0}, "lost": {0, 1}, "failed": {0, 1}} {
		var findings []Finding
		if kind == "exceeded" {
			findings = []Finding{{"+1 KiB: <f> & \"g\" ]]>", "/w/a&b.py", 7}, {Text: "no line\x1b\xff"}}
		}
		out := junit("ttmem leaks", "<model> & 'co'.ttmem", kind, "too <much>", findings)
		qt.Check(t, qt.IsTrue(strings.HasPrefix(string(out), xml.Header)))
		var doc testSuites
		qt.Assert(t, qt.IsNil(xml.Unmarshal(out, &doc)))
		c := doc.Suite.Case
		qt.Check(t, qt.Equals(c.Class, "ttmem leaks"))
		qt.Check(t, qt.Equals(c.Name, "<model> & 'co'.ttmem"))
		qt.Check(t, qt.DeepEquals([]int{doc.Tests, doc.Suite.Tests}, []int{1, 1}))
		qt.Check(t, qt.DeepEquals([2]int{doc.Failures, doc.Errors}, want))
		qt.Check(t, qt.DeepEquals([2]int{doc.Suite.Failures, doc.Suite.Errors}, want))
		qt.Check(t, qt.Equals(c.Failure != nil, want[0] == 1))
		qt.Check(t, qt.Equals(c.Error != nil, want[1] == 1))
		if c.Failure != nil {
			qt.Check(t, qt.Equals(c.Failure.Message, "too <much>"))
			qt.Check(t, qt.Equals(c.Failure.Text, "too <much>\n/w/a&b.py:7: +1 KiB: <f> & \"g\" ]]>\nno line\ufffd\ufffd\n"))
		}
	}
}
