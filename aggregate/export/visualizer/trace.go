package visualizer

import (
	"fmt"
	"path/filepath"
	"strings"

	"ttmem/tracer/event"
)

// maxSources is the size of all source files in a report, in bytes, and maxFiles the number of files
// that are tried.
const maxSources, maxFiles = 64 << 20, 1 << 12

// A source is a source file; its id is 0 if the report does not have it.
type source struct {
	id    int
	lines []string
}

// trace returns the stack trace of an operation as Python writes it, but with the innermost call
// first, and the id of the source file of that; nil if the report does not have it.
func (r *Report) trace(op *operation) (text string, file any) {
	var b strings.Builder
	for i, c := range op.user {
		if i > 0 {
			b.WriteByte('\n')
		}
		function := event.Printable(c.Function)
		if c.File == "" {
			fmt.Fprintf(&b, "  in %s\n", function)
			continue
		}
		fmt.Fprintf(&b, "  File \"%s\", line %d, in %s\n", strings.ReplaceAll(event.Printable(c.File), `"`, "'"), c.Line, function)
		src := r.source(op, c.File)
		if c.Line > 0 && c.Line <= len(src.lines) {
			fmt.Fprintf(&b, "    %s\n", strings.TrimSpace(event.Printable(src.lines[c.Line-1])))
		}
		if i == 0 && src.id > 0 {
			file = src.id
		}
	}
	return b.String(), file
}

// source returns a source file. It writes one that is new.
func (r *Report) source(op *operation, path string) source {
	if r.Source == nil || r.contained[op.pid] || !filepath.IsAbs(path) {
		return source{}
	}
	s, known := r.sources[path]
	if known || r.read >= maxSources || len(r.sources) == maxFiles {
		return s
	}
	text, ok := r.Source(path, r.Wall(op.beganNs))
	if r.read += len(text); ok && r.read <= maxSources {
		text = lines(text)
		s = source{len(r.sources) + 1, strings.Split(text, "\n")}
		r.db.insert("source_files", s.id, event.Printable(path), text)
	}
	r.sources[path] = s
	return s
}

// lines returns a text with printable lines, and with tabs.
func lines(text string) string {
	all := strings.Split(text, "\n")
	for i, line := range all {
		parts := strings.Split(line, "\t")
		for j, part := range parts {
			parts[j] = event.Printable(part)
		}
		all[i] = strings.Join(parts, "\t")
	}
	return strings.Join(all, "\n")
}
