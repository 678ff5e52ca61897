// Package term handles the terminal that ttmem was started from: its width, colours and locale,
// warnings, progress, Ctrl-C and the exit status.
package term

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// ErrInterrupted is the error after Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// NewLine begins a new line after Ctrl-C, which a terminal shows as ^C.
func NewLine() {
	if IsTerminal(os.Stderr) {
		fmt.Fprintln(os.Stderr)
	}
}

// ExitStatus is an error that was already reported and only sets the exit status.
type ExitStatus int

func (s ExitStatus) Error() string { return fmt.Sprintf("exit status %d", int(s)) }

// Warn writes a line to standard error, without waiting for a reader who stalls. A terminal gets several
// if it is too narrow.
func Warn(text string) {
	text = event.Printable(text)
	lines := []string{text}
	if IsTerminal(os.Stderr) {
		lines = page.Wrap(text, Columns(os.Stderr)-len(warning))
	}
	stderr.add(os.Stderr, fmt.Sprintf("%s%s\n", warning, strings.Join(lines, "\n"+page.Blank(len(warning)))))
}

// Line writes a line for another program, such as GitHub's runner, to standard error.
func Line(text string) { stderr.add(os.Stderr, event.Printable(text)+"\n") }

// warning begins what Warn writes.
const warning = "ttmem: "

// UTF8 reports whether the locale has more than ASCII.
func UTF8() bool {
	for _, name := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := os.Getenv(name); v != "" {
			v = strings.ToLower(v)
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return false
}
