package hostile

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"
)

// forged is the text with which hostile names try to begin a line of their own.
const forged = "FORGED-LINE"

// secret is a name in a folder that only root can read. Tests that run at the same time trace
// each other's processes.
var secret = fmt.Sprint("FOLDER-OF-ROOT-", os.Getpid())

// unclean says what is in a text that may not be written to a terminal; "" for nothing.
func unclean(b []byte) string {
	text := string(b)
	if strings.Contains(text, secret) {
		return "what only root may read"
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, forged) {
			return fmt.Sprintf("a forged line: %.80q", line)
		}
	}
	for i, r := range text {
		bad := r < ' ' && r != '\n' && r != '\t' || // escape sequences, carriage returns
			r >= 0x7f && r <= 0x9f || // C1 controls
			r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 || // bidirectional overrides
			r == 0x200e || r == 0x200f || r == 0x061c || r == 0x2028 || r == 0x2029
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				bad = true // a terminal may take it for a C1 control
			}
		}
		if bad {
			return fmt.Sprintf("%q in %.80q", r, text[max(0, i-30):min(len(text), i+50)])
		}
	}
	return ""
}
