package diagnosis

import (
	"bufio"
	"cmp"
	"fmt"
	"path/filepath"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/doctor"
)

// listedFiles is the number of files whose names the text has.
const listedFiles = 3

func (d *Page) writeProcess(w *bufio.Writer, layout page.Layout, p *doctor.Process) {
	line := func(columns, format string, args ...any) {
		writeLine(w, layout, page.Left(columns, 12), fmt.Sprintf(format, args...))
	}
	writeLine(w, layout, "", fmt.Sprintf("Process %d (%s)", p.PID, p.Name))
	line("  user", "%d", p.UID)
	allowed := "you may trace it"
	if !d.Root {
		allowed = "the host's service or sudo traces it for you"
	}
	line("  tracing", "%s", cmp.Or(p.Refused, allowed))
	if p.RunsOn != "" {
		line("  runs on", "%s", p.RunsOn)
	}
	if len(p.TTMetal) == 0 {
		line("  tt-metal", "none of the %s of code that it maps contains it", page.Count(uint64(p.Files-len(p.Unreadable)), "file"))
	} else {
		line("  tt-metal", "%s", strings.Join(p.TTMetal, ", "))
	}
	switch {
	case p.Python != "":
		line("  Python", "CPython %s, in %s", p.Python, p.Interpreter)
		line("  frames", "%s", cmp.Or(not(p.NoFrames), "those of Python and C++"))
	default:
		line("  frames", "those of C++ only: %s", p.NoFrames)
	}
	line("  owners", "%s", cmp.Or(not(p.NoOwners), "can be found"))
	if len(p.Lines) > 0 {
		line("  C++ lines", "debug information in %s", some(p.Lines))
	} else {
		line("  C++ lines", "none: no file of code has debug information; functions have names")
	}
	if len(p.NoUnwind) > 0 {
		line("  stacks", "end in %s, without unwind information", some(p.NoUnwind))
	}
	if len(p.Unreadable) > 0 {
		line("  unread", "%s", some(p.Unreadable))
	}
	fmt.Fprintln(w)
}

// not is a reason why something is not there; "" without one.
func not(why string) string {
	if why == "" {
		return ""
	}
	return "none: " + why
}

// some lists the names of the first files, and counts the others.
func some(paths []string) string {
	files := make([]string, len(paths))
	for i, path := range paths {
		files[i] = filepath.Base(path)
	}
	if more := len(files) - listedFiles; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(files[:listedFiles], ", "), more)
	}
	return strings.Join(files, ", ")
}
