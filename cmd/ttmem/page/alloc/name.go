package alloc

import (
	"cmp"
	"regexp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

// A Site is a call stack with its names.
type Site struct {
	Stack *event.Stack // may be nil
	Look
	Component string
	Matches   bool // the filter's regular expression
}

// WithCaller is a title with the caller that distinguishes the site, if there is one.
func (s *Site) WithCaller(title string) string {
	if s == nil || s.Caller == "" {
		return title
	}
	return title + ", from " + s.Caller
}

// A Namer selects and names the rows of a list.
type Namer struct {
	Rules  *name.Rules
	Filter Filter
	Snap   *memory.Snapshot // has the processes
	Sites  map[*event.Stack]*Site
	users  page.Users
}

// Row completes a row with its site and the selected chips; ok is false if the filter does not
// select the row.
func (n *Namer) Row(a Row, stack *event.Stack) (_ Row, ok bool) {
	if a, ok = n.Filter.Select(a); !ok {
		return a, false
	}
	a.Site = n.Site(stack)
	return a, a.Matches || n.Filter.Grep.MatchString(a.Owner.Path)
}

// Site is the site of a call stack; it is the same for the same stack.
func (n *Namer) Site(stack *event.Stack) *Site {
	s := n.Sites[stack]
	if s == nil {
		if n.Sites == nil {
			n.Sites = make(map[*event.Stack]*Site)
		}
		s = n.NewSite(stack)
		n.Sites[stack] = s
	}
	return s
}

// NewSite names a call stack, without remembering the site.
func (n *Namer) NewSite(stack *event.Stack) *Site {
	frames := stack.Frames()
	s := &Site{Stack: stack, Look: Look{Name: name.Of(frames), Callers: page.Callers(frames)}}
	s.Text = s.Name.String()
	if n.Rules != nil {
		s.Component = n.Rules.Component(frames)
	} else {
		s.Component = name.DefaultComponent(frames)
	}
	s.Matches = n.Filter.Grep == nil || s.MatchedBy(n.Filter.Grep)
	return s
}

// MatchedBy reports whether a pattern matches the name, the component or a frame.
func (s *Site) MatchedBy(pattern *regexp.Regexp) bool {
	return pattern.MatchString(s.Name.String()) || pattern.MatchString(s.Component) ||
		slices.ContainsFunc(s.Stack.Frames(), func(f event.Frame) bool { return pattern.MatchString(name.FrameText(&f)) })
}

// Title is the name of a row, in one line.
func (n *Namer) Title(a *Row, separator string) string {
	name := cmp.Or(page.Clean(a.Name.Text(separator)), Unknown(a.Stack, a.BeforeAttach))
	if n.Rules != nil && a.Component != "" {
		name += separator + page.Clean(a.Component)
	}
	return name
}

// Unknown returns the replacement for the name of an allocation without one.
func Unknown(stack *event.Stack, beforeAttach bool) string {
	switch {
	case beforeAttach:
		return "allocated before ttmem attached"
	case stack == nil:
		return "(no call stack)"
	}
	return "(unknown code)"
}
