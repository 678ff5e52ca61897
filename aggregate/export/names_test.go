package export

import (
	"bytes"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"ttmem/tracer/event"
)

// hostileNames are what a traced program may call itself, its files and its functions.
var hostileNames = map[string]string{
	"escape sequence":  "\x1b[2J\x1b]0;title\x07",
	"C1 controls":      "\u009b31m\u0085\x7f",
	"invalid UTF-8":    "\x9b\xff\xc0",
	"bidirectional":    "\u202e\u2066\u200f\u061c",
	"invisible":        "\u200b\u00ad\ufeff\U000e0041",
	"newlines":         "a\r\nFORGED-LINE 12\u2028b\u2029c\v\f",
	"script":           `</script><script>alert(1)</script><!--`,
	"quotes":           `"'` + "`" + `\`,
	"separators":       "a;b;c 12 13.5",
	"nothing":          "",
	"blanks":           " \t ",
	"a very long name": strings.Repeat("x;\n", 10000),
}

// No name changes the structure of a file, or is acted on by what shows it.
func TestHostileNames(t *testing.T) {
	for kind, name := range hostileNames {
		t.Run(kind, func(t *testing.T) {
			r := newRun()
			r.start(7, name, name)
			r.alloc(7, event.DRAM, 100, stackOf(
				event.Frame{Kind: event.Native, Name: name, Symbol: name, Module: name, Path: "/" + name, BuildID: name, Address: 1},
				event.Frame{Kind: event.Native, Symbol: name, Module: name, Address: 2},
				event.Frame{Kind: event.Python, Name: name, File: "/" + name + ".py", Line: 3},
			), 0)
			p := r.state.Profile()

			line := folded(t, p, Options{AllFrames: true})
			qt.Check(t, qt.Equals(strings.Count(line, "\n"), 1))
			qt.Check(t, qt.HasLen(strings.Split(line, ";"), 6), qt.Commentf("%.200q", line))
			qt.Check(t, qt.IsTrue(strings.HasSuffix(line, " 100\n")))
			checkPrintable(t, strings.TrimSuffix(line, "\n"))

			var pprof bytes.Buffer
			_, err := Pprof(&pprof, p, Options{})
			qt.Assert(t, qt.IsNil(err))
			read, err := profile.Parse(&pprof)
			qt.Assert(t, qt.IsNil(err))
			for line := range strings.Lines(read.String()) {
				checkPrintable(t, strings.TrimRight(line, "\n"))
			}
			for _, m := range read.Mapping {
				checkPrintable(t, m.File+m.BuildID)
			}
			for _, f := range read.Function {
				checkPrintable(t, f.Name+f.SystemName+f.Filename)
			}
		})
	}
}

func checkPrintable(t *testing.T, s string) {
	t.Helper()
	qt.Check(t, qt.Equals(s, event.Printable(s)))
}
