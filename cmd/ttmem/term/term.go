package term

import (
	"errors"
	"fmt"
	"os"
	"strings"
)

// ErrInterrupted says that Ctrl-C ended something before it was done.
var ErrInterrupted = errors.New("interrupted")

// NewLine begins a line on a terminal, which shows Ctrl-C as ^C in the current one.
func NewLine() {
	if IsTerminal(os.Stderr) {
		fmt.Fprintln(os.Stderr)
	}
}

// ExitStatus is an error that was told already and only sets the exit status.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Warn tells the user something in a line of its own.
func Warn(text string) { fmt.Fprintf(os.Stderr, "ttmem: %s\n", text) }

// UTF8 reports whether the user's terminal shows more than ASCII.
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
