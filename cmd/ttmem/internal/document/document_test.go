package document

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"slices"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// hostile has characters that JSON, a page or a terminal does not have as they are.
const hostile = "a\"\\<b>&\x00\n\x7f\x1b[2J\u2028\u202e\xff é 😀"

type inner struct {
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
	Text   string `json:"text"`
}

type outer struct {
	inner
	*event.BankState
	PID     int               `json:"pid,omitempty" user:"user"`
	Other   *int              `json:"other,omitempty" user:"other_user"`
	Share   float64           `json:"share"`
	Counts  map[string]uint64 `json:"counts"`
	Devices []int             `json:"devices,omitzero"`
	Cores   [][2]uint16       `json:"cores,omitempty"`
	Stack   *event.Stack      `json:"stack"`
	Frames  []event.Frame     `json:"frames"`
	Inner   *inner            `json:"inner"`
	Flag    bool              `json:"flag"`
	More    []outer           `json:"more,omitempty"`
	None    inner             `json:"none,omitzero"`
	Hidden  func()            `json:"-"`
	Plain   int8
}

// values have what documents have, with nothing to add.
func values() []any {
	frames := []event.Frame{{Kind: event.Python, Name: hostile, File: "m.py", Line: 1}, {Kind: event.Native, Address: 7}}
	zero := 0
	return []any{
		&outer{Counts: map[string]uint64{}, Frames: []event.Frame{}},
		&outer{
			inner: inner{1 << 63, hostile}, BankState: &event.BankState{FreeBytes: 1}, PID: -1, Other: &zero, Share: 0.1, Counts: map[string]uint64{hostile: 2, "a": 1},
			Devices: []int{}, Cores: [][2]uint16{{1, 2}, {3, 4}}, Stack: event.StackOf(frames), Frames: frames, Inner: &inner{}, Flag: true, More: []outer{{Counts: map[string]uint64{}, Frames: []event.Frame{}}}, None: inner{7, ""}, Plain: -3,
		},
		hostile, []string{"", hostile}, 7, map[int]int{2: 1, 1: 2}, event.StackOf(frames),
	}
}

func TestWritesAsEncodingJSON(t *testing.T) {
	for _, v := range values() {
		want, err := event.MarshalJSON(v)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(Append([]byte("before "), v, nil)), "before "+string(want)))
		var b bytes.Buffer
		qt.Check(t, qt.IsNil(Write(&b, v, nil)))
		qt.Check(t, qt.Equals(b.String(), string(want)+"\n"))
	}
}

func FuzzTexts(f *testing.F) {
	f.Add(hostile)
	f.Fuzz(func(t *testing.T, text string) {
		want, err := event.MarshalJSON(text)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(Append(nil, text, nil)), string(want)))
	})
}

// tens adds ten to times, and knows the users of even PIDs.
type tens struct{}

func (tens) Wall(ns uint64) int64 { return int64(ns) + 10 }

func (tens) User(pid int) string {
	if pid%2 > 0 {
		return ""
	}
	return "user " + strconv.Itoa(pid)
}

func TestAddsWallTimesAndUsers(t *testing.T) {
	type document struct {
		inner
		PID  int   `json:"pid,omitempty" user:"user"`
		By   *int  `json:"by,omitempty" user:"by_user"`
		List []any `json:"-"`
	}
	even, odd := 8, 9
	for _, test := range []struct {
		v    any
		want string
	}{
		{document{inner{5, `"time_ns":5`}, 4, &even, nil}, `{"time_ns":5,"wall_ns":15,"text":"\"time_ns\":5","pid":4,"user":"user 4","by":8,"by_user":"user 8"}`},
		{[]*document{{inner{0, ""}, 0, nil, nil}, {inner{1, ""}, 7, &odd, nil}}, `[{"time_ns":0,"text":""},{"time_ns":1,"wall_ns":11,"text":"","pid":7,"by":9}]`},
	} {
		qt.Check(t, qt.Equals(string(Append(nil, test.v, tens{})), test.want))
	}
}

type long struct {
	V     int              `json:"v"`
	Items iter.Seq[*inner] `json:"items"`
	None  iter.Seq[string] `json:"none"`
	End   string           `json:"end"`
}

func TestNilListsAreEmpty(t *testing.T) {
	qt.Check(t, qt.Equals(string(Append(nil, struct {
		List   []int
		Counts map[string]int
		Long   iter.Seq[int]
	}{}, nil)), `{"List":[],"Counts":{},"Long":[]}`))
}

// parts counts what is written, and how large the largest part is.
type parts struct {
	text    []byte
	largest int
	fail    error
}

func (p *parts) Write(b []byte) (int, error) {
	p.text, p.largest = append(p.text, b...), max(p.largest, len(b))
	return len(b), p.fail
}

// TestLongListsAreNotInMemory: neither those of a sequence nor those of a slice.
func TestLongListsAreNotInMemory(t *testing.T) {
	const items = 10_000
	all := make([]*inner, items)
	made := 0
	for i := range all {
		all[i] = &inner{TimeNs: uint64(i), Text: "a text of a few bytes"}
	}
	seq := func(yield func(*inner) bool) {
		for made = range all {
			if !yield(all[made]) {
				return
			}
		}
	}
	var p parts
	qt.Assert(t, qt.IsNil(Write(&p, &long{1, seq, slices.Values([]string{"a"}), "end"}, nil)))
	want := `{"v":1,"items":` + string(Append(nil, all, nil)) + `,"none":["a"],"end":"end"}` + "\n"
	qt.Check(t, qt.IsTrue(string(p.text) == want))
	qt.Check(t, qt.IsTrue(p.largest < 2*part), qt.Commentf("%d", p.largest))
	p = parts{}
	qt.Assert(t, qt.IsNil(Write(&p, all, nil)))
	qt.Check(t, qt.IsTrue(p.largest < 2*part), qt.Commentf("%d", p.largest))

	p = parts{fail: io.ErrClosedPipe}
	qt.Check(t, qt.IsTrue(errors.Is(Write(&p, &long{1, seq, nil, ""}, nil), io.ErrClosedPipe)))
	qt.Check(t, qt.IsTrue(made < items-1)) // it ends with the reader
}
