package python

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// libraryCodes is the number of code objects of the standard library to compare.
const libraryCodes = "3000"

func TestLinesEqualPython(t *testing.T) {
	for _, p := range interpreters(t) {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(p.Exe, "testdata/lines.py", libraryCodes)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(cmd.Start()))
			var minor int
			_, err = fmt.Sscanf(p.Version, "3.%d", &minor)
			qt.Assert(t, qt.IsNil(err))
			codes, lines := 0, 0
			for s := json.NewDecoder(bufio.NewReader(out)); s.More(); codes++ {
				lines += compareLines(t, s, minor)
			}
			qt.Assert(t, qt.IsNil(cmd.Wait()), qt.Commentf("%s", &stderr))
			qt.Assert(t, qt.IsTrue(codes > 3000))
			t.Logf("%d code objects, %d instructions", codes, lines)
		})
	}
}

// compareLines compares the lines of one code object and returns their number.
func compareLines(t *testing.T, s *json.Decoder, minor int) (lines int) {
	t.Helper()
	var (
		name, table string
		first, size int
		ranges      [][3]int
	)
	fields := []any{&name, &first, &table, &size, &ranges}
	qt.Assert(t, qt.IsNil(s.Decode(&fields)))
	c := Code{Minor: minor, FirstLine: first}
	var err error
	c.LineTable, err = hex.DecodeString(table)
	qt.Assert(t, qt.IsNil(err))
	end := 0
	for _, r := range ranges {
		qt.Assert(t, qt.Equals(r[0], end))
		for offset := r[0]; offset < r[1]; offset += codeUnit {
			if line := c.Line(offset); line != r[2] {
				t.Fatalf("%s at line %d, offset %d: line %d, not %d (table %s)", name, first, offset, line, r[2], table)
			}
			lines++
		}
		end = r[1]
	}
	qt.Check(t, qt.Equals(c.Line(end), 0), qt.Commentf("%s: after the last instruction", name))
	return lines
}

func TestLine(t *testing.T) {
	const none, noColumns, long, short, oneLine = 0x80 | 15<<3, 0x80 | 13<<3, 0x80 | 14<<3, 0x80, 0x80 | 10<<3
	for _, test := range []struct {
		name   string
		minor  int
		table  []byte
		offset int
		want   int
	}{
		{"pairs: first", 10, []byte{4, 1, 2, 0xff}, 2, 11},
		{"pairs: back", 10, []byte{4, 1, 2, 0xff}, 4, 10},
		{"pairs: after the last", 10, []byte{4, 1, 2, 0xff}, 6, 0},
		{"pairs: none", 10, []byte{4, 0x80, 2, 1}, 0, 0},
		{"pairs: after none", 10, []byte{4, 0x80, 2, 1}, 4, 11},
		{"pairs: half of one", 10, []byte{4, 1, 2}, 4, 0},
		{"pairs: below 0", 10, []byte{4, 0x81}, 0, 0},
		{"pairs: frame not started", 10, nil, -2, 10},
		{"pairs: negative", 10, []byte{4, 1}, -1, 0},
		{"entries: short", 11, []byte{short, 0}, 0, 10},
		{"entries: between units", 11, []byte{short, 0}, 1, 10},
		{"entries: after the last", 11, []byte{short, 0}, 2, 0},
		{"entries: one line", 12, []byte{oneLine + 2<<3, 0, 0}, 0, 12},
		{"entries: back", 12, []byte{noColumns | 1, 3, short, 0}, 4, 9},
		{"entries: no line", 12, []byte{none, noColumns, 2}, 0, 0},
		{"entries: after no line", 12, []byte{none, noColumns, 2}, 2, 11},
		{"entries: long", 13, []byte{long | 7, 0x42, 1, 0, 1, 1}, 14, 10 + 33},
		{"entries: cut short", 13, []byte{long, 0x42}, 0, 0},
		{"entries: no end of a number", 13, []byte{long, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0}, 0, 0},
		{"entries: a number runs into the next", 13, []byte{noColumns, 0x42, noColumns, 2}, 0, 0},
		{"entries: no first byte", 13, []byte{1, short, 0}, 0, 0},
		{"entries: beyond an int", 13, []byte{noColumns, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x1f}, 0, 0},
		{"entries: frame not started", 13, nil, -2, 10},
		{"entries: empty", 13, nil, 0, 0},
	} {
		c := Code{Minor: test.minor, FirstLine: 10, LineTable: test.table}
		qt.Check(t, qt.Equals(c.Line(test.offset), test.want), qt.Commentf("%s", test.name))
	}
}

func FuzzLine(f *testing.F) {
	for minor := 10; minor <= 14; minor++ {
		f.Add(minor, []byte{4, 1, 2, 0xff, 2, 0x80, 0xff, 0x7f}, 1, 4)
		f.Add(minor, []byte{0xf0, 0x42, 1, 0, 1, 1, 0xf8, 0xe9, 3, 0x80, 7, 0xd1, 1, 2}, 1<<31-1, 12)
		f.Add(minor, []byte{0xe8, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f}, -1, -2)
	}
	f.Fuzz(func(t *testing.T, minor int, table []byte, first, offset int) {
		c := Code{Minor: minor, FirstLine: first, LineTable: table}
		if line := c.Line(offset); line < 0 || line > 1<<31-1 {
			t.Fatal(fmt.Sprint("line ", line))
		}
	})
}
