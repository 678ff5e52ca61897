package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/docs"
)

// TestPagesOfTheDocumentation: each page that a help text names can be read with ttmem help, as it is named
// there, and topics lists all pages with their titles.
func TestPagesOfTheDocumentation(t *testing.T) {
	shown := func(args ...string) string {
		t.Helper()
		var out strings.Builder
		root := newRoot()
		root.SetOut(&out)
		root.SetArgs(append([]string{"help"}, args...))
		qt.Assert(t, qt.IsNil(root.Execute()), qt.Commentf("%q", args))
		return out.String()
	}
	names, titles := docs.Pages()
	qt.Assert(t, qt.IsTrue(len(names) > 20))
	list := shown("topics")
	for i, name := range names {
		qt.Check(t, qt.StringContains(list, "docs/"+name+".md"))
		qt.Check(t, qt.StringContains(list, titles[i]))
		qt.Check(t, qt.IsTrue(strings.HasPrefix(shown("docs/"+name+".md"), "# "+titles[i]+"\n")))
	}
	qt.Check(t, qt.StringContains(shown("stacks"), "# Call stacks"))
	qt.Check(t, qt.StringContains(shown("leaks"), "Usage:"), qt.Commentf("a command comes first"))
	qt.Check(t, qt.ErrorMatches(execute("help", "docs/nonsense.md"), ".*no such command.*"))
}
