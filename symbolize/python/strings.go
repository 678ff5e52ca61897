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
	stateASCII   = 1 << 6 // the characters begin at Offsets.StrASCII, not at StrOther
)

// DecodeString converts the copied characters of a str object, by the object's state. If the data
// was truncated, it returns the text up to there. An invalid character, such as a lone surrogate,
// becomes U+FFFD. It returns "" if the state is not that of a str with its characters in the
// object.
func DecodeString(state uint32, data []byte) string {
	size := int(state & stateKind >> 2)
	if state&stateCompact == 0 || size != 1 && size != 2 && size != 4 {
		return ""
	}
	if size == 1 && state&stateASCII != 0 {
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
