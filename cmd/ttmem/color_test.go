package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
)

// TestColoursAreForTerminals, unless --color says otherwise.
func TestColoursAreForTerminals(t *testing.T) {
	path := writeEvents(t, "busy.ttmem", busyEvents())
	terminal, pipe := &unix.Winsize{Row: 24, Col: 80}, (*unix.Winsize)(nil)
	for _, test := range []struct {
		name, flag, variable string
		size                 *unix.Winsize
		want                 bool
	}{
		{"terminal", "", "", terminal, true},
		{"pipe", "", "", pipe, false},
		{"NO_COLOR", "", "NO_COLOR", terminal, false},
		{"dumb terminal", "", "TERM", terminal, false},
		{"never", "--color=never", "", terminal, false},
		{"always, in a pipe", "--color=always", "", pipe, true},
		{"alone, in a pipe", "--color", "", pipe, true},
		{"always, in spite of NO_COLOR", "--color=always", "NO_COLOR", pipe, true},
		{"auto", "--color=auto", "", pipe, false},
	} {
		for _, command := range []string{"report", "dump", "peak", "leaks", "oom", "map", "log", "top --once"} {
			t.Run(test.name+"/"+command, func(t *testing.T) {
				t.Setenv("NO_COLOR", "")
				t.Setenv("TERM", "xterm-256color")
				if test.variable != "" {
					t.Setenv(test.variable, "dumb")
				}
				out, errs, status := runSized(t, test.size, append(strings.Fields(command), strings.Fields(path+" "+test.flag)...))
				qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
				// top has bold and reverse text without colours, too
				colored := strings.Contains(out, "\x1b[3") || strings.Contains(out, "\x1b[1;3") || command != "top --once" && strings.Contains(out, "\x1b[")
				qt.Check(t, qt.Equals(colored, test.want), qt.Commentf("%q", out))
			})
		}
	}
	out, _, _ := runSized(t, terminal, []string{"top", path, "--once", "--color=never"})
	qt.Check(t, qt.Not(qt.StringContains(out, "\x1b")))
}

// TestTheWidthIsCOLUMNSOrTheTerminals, in this order; a pipe has lines of any length.
func TestTheWidthIsCOLUMNSOrTheTerminals(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	path := writeEvents(t, "shared.ttmem", sharedHost(anna, ben))
	widest := func(size *unix.Winsize, command string) (columns int) {
		out, errs, status := runSized(t, size, append(strings.Fields(command), path))
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		for line := range strings.Lines(out) {
			columns = max(columns, page.Width(strings.TrimRight(pagetest.Colors.ReplaceAllString(line, ""), "\r\n")))
		}
		return columns
	}
	terminal := &unix.Winsize{Row: 24, Col: 120}
	for _, command := range []string{"report", "dump", "oom", "log", "map", "top --once"} {
		t.Setenv("COLUMNS", "")
		whole := widest(nil, command)
		onTerminal := widest(terminal, command)
		qt.Check(t, qt.IsTrue(onTerminal > 70 && onTerminal <= 120), qt.Commentf("%s: %d", command, onTerminal))
		qt.Check(t, qt.IsTrue(whole > 70), qt.Commentf("%s: %d", command, whole))
		t.Setenv("COLUMNS", "70")
		qt.Check(t, qt.IsTrue(widest(terminal, command) <= 70), qt.Commentf("%s", command))
		qt.Check(t, qt.IsTrue(widest(nil, command) <= 70), qt.Commentf("%s", command))
	}
	t.Setenv("COLUMNS", "")
	out, _, _ := runSized(t, nil, []string{"report", path}) // no name is cut
	qt.Check(t, qt.StringContains(out, "MultiHeadAttentionWithRotaryEmbedding.forward · ttnn.scaled_dot_product_attention_decode\n"))
	qt.Check(t, qt.Not(qt.StringContains(out, "…")))
}
