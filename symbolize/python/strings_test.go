package python

import (
	"testing"
	"unicode/utf8"

	"github.com/go-quicktest/qt"
)

const (
	ascii  = 1<<2 | stateCompact | stateASCII
	latin1 = 1<<2 | stateCompact
	ucs2   = 2<<2 | stateCompact
	ucs4   = 4<<2 | stateCompact
)

func TestDecodeString(t *testing.T) {
	for _, test := range []struct {
		name  string
		state uint32
		data  string
		want  string
	}{
		{"ASCII", ascii, "main", "main"},
		{"ASCII that is none", ascii, "ma\xffin", "ma\ufffdin"},
		{"with other bits", ascii | 1<<7 | 1, "main", "main"},
		{"Latin-1", latin1, "gr\xf6\xdfe", "größe"},
		{"two bytes", ucs2, "\x44\x04\x43\x04a\x00", "фуa"},
		{"two bytes, cut short", ucs2, "\x44\x04\x43", "ф"},
		{"lone surrogate", ucs2, "\x00\xd8a\x00", "\ufffda"},
		{"two surrogates are two characters", ucs2, "\x01\xd8\x28\xdc", "\ufffd\ufffd"},
		{"four bytes", ucs4, "\x28\x04\x01\x00\x00\xd8\x00\x00", "𐐨\ufffd"},
		{"four bytes, cut short", ucs4, "\x28\x04\x01\x00\x00\xd8\x00", "𐐨"},
		{"four bytes that are no character", ucs4, "\x00\x00\x11\x00\xff\xff\xff\xff", "\ufffd\ufffd"},
		{"NUL", ascii, "a\x00b", "a\x00b"},
		{"empty", ascii, "", ""},
		{"not compact", ascii &^ stateCompact, "main", ""},
		{"kind 0", stateCompact, "main", ""},
		{"kind 3", 3<<2 | stateCompact, "main", ""},
	} {
		qt.Check(t, qt.Equals(DecodeString(test.state, []byte(test.data)), test.want), qt.Commentf("%s", test.name))
	}
}

func FuzzDecodeString(f *testing.F) {
	for _, state := range []uint32{0, ascii, latin1, ucs2, ucs4, 1<<32 - 1} {
		f.Add(state, []byte("main"))
		f.Add(state, []byte("\x28\x04\x01\x00\x00\xd8\x00\x00\xff"))
	}
	f.Fuzz(func(t *testing.T, state uint32, data []byte) {
		s := DecodeString(state, data)
		if !utf8.ValidString(s) || len(s) > 3*len(data) {
			t.Fatalf("%q", s)
		}
	})
}
