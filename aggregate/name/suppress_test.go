package name

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestSuppressions(t *testing.T) {
	s, err := ReadSuppressions("known", strings.NewReader("# accepted\n\n  model\\.py:1\\d forward$ \nkv_cache\n"))
	qt.Assert(t, qt.IsNil(err))
	at := func(file string, line int, name string) []event.Frame {
		return []event.Frame{{Kind: event.Native, Name: "ttnn::add"}, {Kind: event.Python, File: file, Line: line, Name: name}}
	}
	qt.Check(t, qt.IsTrue(s.Match(at("/src/model.py", 12, "forward"))))
	qt.Check(t, qt.IsFalse(s.Match(at("/src/model.py", 22, "forward"))))
	qt.Check(t, qt.IsTrue(s.Match(at("/src/kv_cache.py", 22, "push"))))
	qt.Check(t, qt.IsFalse(s.Match(nil)))
	var none *Suppressions
	qt.Check(t, qt.IsFalse(none.Match(at("/src/kv_cache.py", 22, "push"))))

	_, err = ReadSuppressions("known", strings.NewReader("fine\n(\n"))
	qt.Check(t, qt.ErrorMatches(err, `known:2: not a regular expression: .*`))
}
