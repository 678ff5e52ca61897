package name

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"ttmem/tracer/event"
)

// Rules turn stacks into components of a model, such as "layer 3/attention/wq".
type Rules struct{ list []rule }

type rule struct {
	match     *regexp.Regexp
	component string
}

// ReadRules reads rules, one a line: REGEXP -> COMPONENT, where $1 in the component
// is what the regular expression's first group matched. Lines that are empty or begin
// with # are none. An error begins with the name and the line's number.
func ReadRules(name string, r io.Reader) (*Rules, error) {
	rules := &Rules{}
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		rule, err := parseRule(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		rules.list = append(rules.list, rule)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	if len(rules.list) == 0 {
		return nil, fmt.Errorf("%s: no rules: a line is REGEXP -> COMPONENT", name)
	}
	return rules, nil
}

func parseRule(line string) (rule, error) {
	// the last arrow: the expression may have one, a component has no use for it
	i := strings.LastIndex(line, "->")
	if i < 0 {
		return rule{}, fmt.Errorf("no -> in %q: a line is REGEXP -> COMPONENT", line)
	}
	text, component := strings.TrimSpace(line[:i]), strings.TrimSpace(line[i+2:])
	if text == "" || component == "" {
		return rule{}, errors.New("nothing before or after ->: a line is REGEXP -> COMPONENT")
	}
	match, err := regexp.Compile(text)
	if err != nil {
		return rule{}, err
	}
	for _, group := range groupsIn.FindAllStringSubmatch(component, -1) {
		name := group[1] + group[2]
		if strings.Trim(name, "0123456789") != "" && match.SubexpIndex(name) < 0 {
			return rule{}, fmt.Errorf("$%s is no group of %s: write ${1} where a letter, digit or _ follows", name, text)
		}
		var n int
		if _, err := fmt.Sscan(name, &n); err == nil && n > match.NumSubexp() {
			return rule{}, fmt.Errorf("$%d in the component, and %s has %d groups", n, text, match.NumSubexp())
		}
	}
	return rule{match, component}, nil
}

// groupsIn finds $1, $name and ${name}, as regexp.Expand does.
var groupsIn = regexp.MustCompile(`\$(?:(\w+)|\{(\w+)\})`)

// Component is the part of the model that a stack is in. The frames are compared
// from the outermost to the innermost, each with the rules in their order; the first
// that matches gives a part, and the parts are joined by slashes. It is "" where
// none matches.
//
// A frame is compared as FILE:LINE FUNCTION, with the whole path; a native one whose
// line is not known, as its function.
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
			// what calls itself is there once
			if part != "" && (len(parts) == 0 || parts[len(parts)-1] != part) {
				parts = append(parts, part)
			}
			break
		}
	}
	return strings.Join(parts, "/")
}

// DefaultComponent is what stands for a component without rules: the functions of
// the user's own code from the outermost to the innermost.
func DefaultComponent(stack []event.Frame) string {
	var parts []string
	calls := UserCalls(stack)
	for i := len(calls) - 1; i >= 0; i-- {
		name := calls[i].Function
		if last := function(name); last == "" || last[0] == '<' {
			continue // a module, a lambda, a list that is made
		}
		if len(parts) == 0 || parts[len(parts)-1] != name {
			parts = append(parts, name)
		}
	}
	return strings.Join(parts, "/")
}

// FrameText is a frame as regular expressions are compared with it.
func FrameText(f *event.Frame) string {
	if f.File == "" {
		return f.Name
	}
	return fmt.Sprintf("%s:%d %s", f.File, f.Line, f.Name)
}
