package python

import (
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

// The state of a str object, a u32 of bit fields (Include/cpython/unicodeobject.h): how its
// characters are stored. Same from 3.10 to 3.14.
const (
	stateKind    = 7 << 2 // bytes a character: 1, 2 or 4
	stateCompact = 1 << 5 // the characters follow the object itself
	stateASCII   = 1 << 6
)

// isASCII reports whether the characters of a str object in this state begin at
// Offsets.StrASCII, and not at Offsets.StrOther.
func isASCII(state uint32) bool { return state&stateASCII != 0 }

// charSize is the size of a character of a str object in this state: 1, 2 or 4 bytes; 0 if
// the characters do not follow the object.
func charSize(state uint32) int {
	if state&stateCompact == 0 {
		return 0
	}
	switch n := state & stateKind >> 2; n {
	case 1, 2, 4:
		return int(n)
	}
	return 0
}

// DecodeString converts the characters of a str object, as they were copied, by the
// object's state. If the data was truncated, it returns the text up to there. An invalid
// character, such as a lone surrogate, becomes U+FFFD. It returns "" if the state is not
// that of a str with its characters in the object.
func DecodeString(state uint32, data []byte) string {
	size := charSize(state)
	if size == 0 {
		return ""
	}
	if size == 1 && isASCII(state) {
		return strings.ToValidUTF8(string(data), string(utf8.RuneError))
	}
	var text strings.Builder
	text.Grow(len(data))
	for ; len(data) >= size; data = data[size:] {
		var c uint32
		switch size {
		case 1:
			c = uint32(data[0])
		case 2:
			c = uint32(binary.LittleEndian.Uint16(data))
		case 4:
			c = binary.LittleEndian.Uint32(data)
		}
		// Two surrogates are two characters in Python. WriteRune writes U+FFFD for each,
		// but not for numbers beyond the range of runes.
		text.WriteRune(rune(min(c, utf8.MaxRune+1)))
	}
	return text.String()
}
