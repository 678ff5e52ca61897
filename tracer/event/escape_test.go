package event

import (
	"encoding/json"
	"testing"

	"github.com/go-quicktest/qt"
)

// hostile has a character of each kind that a terminal or an editor acts on.
const hostile = "a\x1b[2J\x7f\u009b31m\u00ad\u061c\u200e\u2028\u202e\u2066\ufeff\U000e0001\"\\\n日本 é 😀"

func TestEscapedJSONMeansTheSameAndIsPrintable(t *testing.T) {
	text, err := MarshalJSON(map[string]string{hostile: hostile})
	qt.Assert(t, qt.IsNil(err))
	record := record(&Event{Kind: Alloc, Comm: hostile})
	for _, text := range [][]byte{text, record} {
		for _, r := range string(text) {
			qt.Check(t, qt.IsFalse(r < ' ' || unprintable(r)), qt.Commentf("%q in %s", r, text))
		}
	}
	var back map[string]string
	qt.Assert(t, qt.IsNil(json.Unmarshal(text, &back)))
	qt.Check(t, qt.Equals(back[hostile], hostile))
	var e struct{ Comm string }
	qt.Assert(t, qt.IsNil(json.Unmarshal(record, &e)))
	qt.Check(t, qt.Equals(e.Comm, hostile))
	plain, err := MarshalJSON("日本 é 😀")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(plain), `"日本 é 😀"`))
}
