package document

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// cells are those of the fields of a list, in order.
type cells []any

type list struct {
	fields []Field
	rows   []cells
}

type row struct {
	of    *list
	cells cells
}

type seq func(yield func(row) bool)

func (s seq) AddTo(to *Columns) {
	var columns []*Column
	for r := range s {
		for i, v := range r.cells {
			if i == len(columns) {
				columns = append(columns, to.New(&r.of.fields[i]))
			}
			columns[i].Value(reflect.ValueOf(v))
		}
	}
}

func (l *list) seq(yield func(row) bool) {
	for _, one := range l.rows {
		if !yield(row{l, one}) {
			return
		}
	}
}

type page struct {
	V    int `json:"v"`
	Rows seq `json:"rows"`
}

type clock struct{}

func every(string) bool { return true }

func (clock) Wall(ns uint64) int64 {
	if ns < 10 {
		return 0
	}
	return int64(ns) + 1000
}

func (clock) User(pid int) string { return strings.Repeat("u", pid) }

// readColumns reads what WriteColumns wrote, as the Python package does.
func readColumns(t *testing.T, text string) (rows int, columns map[string][]any) {
	t.Helper()
	line, rest, found := strings.Cut(text, "\n")
	qt.Assert(t, qt.IsTrue(found))
	var head struct {
		Rows struct {
			Rows    int
			Columns []struct {
				Key, Kind string
				Width     int
				Missing   bool
				Values    []any
			}
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &head)), qt.Commentf("%s", line))
	columns = make(map[string][]any)
	take := func(n int) (part string) {
		part, rest = rest[:n], rest[n:]
		return part
	}
	for _, c := range head.Rows.Columns {
		missing := ""
		if c.Missing {
			missing = take(head.Rows.Rows)
		}
		for i := range head.Rows.Rows {
			number := uint64(0)
			if c.Width > 0 {
				var b [8]byte
				copy(b[:], take(c.Width))
				number = binary.LittleEndian.Uint64(b[:])
			}
			var value any
			switch {
			case c.Missing && missing[i] == 1:
			case c.Values != nil:
				value = c.Values[number]
			case c.Kind == "bool":
				value = number != 0
			case c.Kind == "int":
				value = float64(int64(number))
			default:
				value = float64(number)
			}
			columns[c.Key] = append(columns[c.Key], value)
		}
	}
	qt.Check(t, qt.Equals(rest, ""))
	return head.Rows.Rows, columns
}

func field(key string, omitted bool) Field { return Field{Key: key, OmitEmpty: omitted} }

func write(t *testing.T, l *list) (rows int, columns map[string][]any) {
	t.Helper()
	var b strings.Builder
	qt.Assert(t, qt.IsNil(WriteColumns(&b, &page{1, l.seq}, clock{}, every)))
	return readColumns(t, b.String())
}

func TestColumnsHaveTheValues(t *testing.T) {
	zero := uint64(0)
	at, process := field("at", false), field("pid", false)
	at.Wall, process.User = "wall", "user"
	rows, got := write(t, &list{
		[]Field{field("same", false), field("text", true), field("large", false), field("on", true), field("both", false), field("list", true), field("pointer", true), at, process, field("never", true)},
		[]cells{
			{int32(-7), "a\n<", uint64(math.MaxUint64), false, true, []int{1, 2}, &zero, uint64(5), 1, ""},
			{int32(-7), "", uint64(3), true, false, []int(nil), (*uint64)(nil), uint64(50), 1, ""},
			{int32(-7), "b", uint64(4), false, true, []int{1, 2}, (*uint64)(nil), uint64(60), 2, ""},
		},
	})
	qt.Check(t, qt.Equals(rows, 3))
	qt.Check(t, qt.DeepEquals(got, map[string][]any{
		"same": {-7.0, -7.0, -7.0}, "text": {"a\n<", nil, "b"}, "large": {float64(math.MaxUint64), 3.0, 4.0},
		"on": {nil, true, nil}, "both": {true, false, true}, "list": {[]any{1.0, 2.0}, nil, []any{1.0, 2.0}},
		"pointer": {0.0, nil, nil}, "at": {5.0, 50.0, 60.0}, "wall": {nil, 1050.0, 1060.0}, "pid": {1.0, 1.0, 2.0}, "user": {"u", "u", "uu"},
	}))
}

func TestColumnsOfNoRows(t *testing.T) {
	rows, got := write(t, &list{[]Field{field("a", false)}, nil})
	qt.Check(t, qt.Equals(rows, 0))
	qt.Check(t, qt.HasLen(got, 0))
}

// TestIndicesAreWideEnough for the number of texts.
func TestIndicesAreWideEnough(t *testing.T) {
	for _, n := range []int{1, 2, 256, 257, 65536, 65537, 100_000} {
		l := &list{fields: []Field{field("text", false)}}
		for i := range n {
			l.rows = append(l.rows, cells{fmt.Sprint(i)})
		}
		l.rows = append(l.rows, cells{"0"})
		rows, got := write(t, l)
		qt.Check(t, qt.Equals(rows, n+1))
		for i := range n {
			qt.Assert(t, qt.Equals(got["text"][i], any(fmt.Sprint(i))))
		}
		qt.Check(t, qt.Equals(got["text"][n], any("0")))
	}
}

// spread is a seq whose rows are spread.
type spread seq

var spreadRows = []uint32{2, 0, 1, 1, 2}

func (s spread) AddTo(to *Columns) {
	seq(s).AddTo(to)
	for _, c := range to.list {
		c.Spread(spreadRows)
	}
}

// TestRowsAreSpread over more: each column has the values of those rows, and what stands beside them.
func TestRowsAreSpread(t *testing.T) {
	at, process := field("at", false), field("pid", false)
	at.Wall, process.User = "wall", "user"
	few := &list{
		[]Field{field("same", false), field("text", true), field("large", false), at, process, field("never", true)},
		[]cells{{"a", "", uint64(5), uint64(5), 1, ""}, {"a", "b", uint64(6), uint64(50), 0, ""}, {"a", "c", uint64(1 << 60), uint64(60), 0, ""}},
	}
	var b strings.Builder
	qt.Assert(t, qt.IsNil(WriteColumns(&b, &struct {
		Rows spread `json:"rows"`
	}{few.seq}, clock{}, every)))
	rows, got := readColumns(t, b.String())
	many := &list{fields: few.fields}
	for _, row := range spreadRows {
		many.rows = append(many.rows, few.rows[row])
	}
	_, want := write(t, many)
	qt.Check(t, qt.Equals(rows, len(spreadRows)))
	qt.Check(t, qt.DeepEquals(got, want))
}

// TestSelectedColumns have what stands beside them; others are left out.
func TestSelectedColumns(t *testing.T) {
	at, process := field("at", false), field("pid", false)
	at.Wall, process.User = "wall", "user"
	columns := Columns{add: clock{}, selected: func(key string) bool { return key == "at" || key == "user" }}
	text := field("text", false)
	qt.Check(t, qt.IsNotNil(columns.New(&at)))
	qt.Check(t, qt.IsNotNil(columns.New(&process)))
	qt.Check(t, qt.IsNil(columns.New(&text)))
}
