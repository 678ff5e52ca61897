package name

import (
	"io"
	"regexp"

	"ttmem/tracer/event"
)

// Suppressions match the call stacks of leaks that the user knows and accepts.
type Suppressions struct{ list []*regexp.Regexp }

// ReadSuppressions reads regular expressions, one per line. Empty lines and lines that
// begin with # are ignored. Errors begin with the file's name and the line number.
func ReadSuppressions(file string, r io.Reader) (*Suppressions, error) {
	s := &Suppressions{}
	err := readLines(file, r, func(line string) error {
		match, err := Compile(line)
		s.list = append(s.list, match)
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Match reports whether an expression matches any frame of the stack, as FrameText returns it.
func (s *Suppressions) Match(stack []event.Frame) bool {
	if s == nil {
		return false
	}
	for i := range stack {
		text := FrameText(&stack[i])
		for _, match := range s.list {
			if match.MatchString(text) {
				return true
			}
		}
	}
	return false
}
