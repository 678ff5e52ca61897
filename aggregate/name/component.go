package name

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"regexp/syntax"
	"strings"

	"ttmem/tracer/event"
)

// Rules map call stacks to components of a model, such as "layer 3/attention/wq".
type Rules struct{ list []rule }

type rule struct {
	match     *regexp.Regexp
	component string
}

// ReadRules reads rules, one per line: REGEXP -> COMPONENT. In the component, $1 is the text that
// the first group of the regular expression matched. Empty lines and lines that begin with # are
// ignored. Errors begin with the file's name and the line number.
func ReadRules(file string, r io.Reader) (*Rules, error) {
	rules := &Rules{}
	err := readLines(file, r, func(line string) error {
		rule, err := parseRule(line)
		rules.list = append(rules.list, rule)
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(rules.list) == 0 {
		return nil, fmt.Errorf("%s: no rules: a line is REGEXP -> COMPONENT", file)
	}
	return rules, nil
}

// Compile compiles a regular expression of a user.
func Compile(text string) (*regexp.Regexp, error) {
	match, err := regexp.Compile(text)
	var wrong *syntax.Error
	if errors.As(err, &wrong) {
		return nil, fmt.Errorf("not a regular expression: %s: %s", wrong.Code, text)
	}
	return match, err
}

// readLines calls add for each line that is neither empty nor a comment.
func readLines(file string, r io.Reader, add func(line string) error) error {
	lines := bufio.NewScanner(r)
	n := 1
	for ; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		if err := add(line); err != nil {
			return fmt.Errorf("%s:%d: %w", file, n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", file, n, err)
	}
	return nil
}

func parseRule(line string) (rule, error) {
	// The last arrow is the separator: an expression may contain one, a component does not.
	i := strings.LastIndex(line, "->")
	if i < 0 {
		return rule{}, fmt.Errorf("no -> in %q: a line is REGEXP -> COMPONENT", line)
	}
	text, component := strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+2:])
	if text == "" || component == "" {
		return rule{}, errors.New("nothing before or after ->: a line is REGEXP -> COMPONENT")
	}
	match, err := Compile(text)
	if err != nil {
		return rule{}, err
	}
	for _, group := range groupsIn.FindAllStringSubmatch(component, -1) {
		name := group[1] + group[2]
		if strings.Trim(name, "0123456789") != "" && match.SubexpIndex(name) < 0 {
			return rule{}, fmt.Errorf("$%s is not a group of %s: write ${1} where a letter, digit or _ follows", name, text)
		}
		var n int
		if _, err := fmt.Sscan(name, &n); err == nil && n > match.NumSubexp() {
			return rule{}, fmt.Errorf("$%d in the component, and %s has %d groups", n, text, match.NumSubexp())
		}
	}
	return rule{match, component}, nil
}

// groupsIn matches $1, $name and ${name}, as regexp.Expand does.
var groupsIn = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)\})`)

// Component returns the component of a stack, or "" if no rule matches. It compares each frame,
// as FrameText returns it, from the outermost to the innermost with the rules in their order. The
// first rule that matches a frame gives a part; slashes join the parts.
func (r *Rules) Component(stack []event.Frame) string {
	var parts []string
	for i := len(stack) - 1; i >= 0; i-- {
		text := FrameText(&stack[i])
		for _, rule := range r.list {
			at := rule.match.FindStringSubmatchIndex(text)
			if at == nil {
				continue
			}
			part := string(rule.match.ExpandString(nil, rule.component, text, at))
			// A recursive function gives one part.
			if part != "" && (len(parts) == 0 || parts[len(parts)-1] != part) {
				parts = append(parts, part)
			}
			break
		}
	}
	return strings.Join(parts, "/")
}

// DefaultComponent returns the component of a stack without rules: the functions of the user's
// own code from the outermost to the innermost.
func DefaultComponent(stack []event.Frame) string {
	var parts []string
	calls := UserCalls(stack)
	for i := len(calls) - 1; i >= 0; i-- {
		name := calls[i].Function
		if last := function(name); last == "" || last[0] == '<' {
			continue // a module, a lambda or a comprehension
		}
		if len(parts) == 0 || parts[len(parts)-1] != name {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, "/")
}

// FrameText returns the text of a frame for regular expressions: FILE:LINE FUNCTION with the
// whole path, or only the function if its line is not known.
func FrameText(f *event.Frame) string {
	if f.File == "" {
		return f.Name
	}
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Name)
}
