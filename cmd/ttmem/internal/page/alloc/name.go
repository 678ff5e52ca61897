package alloc

import (
	"regexp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Site is a call stack with its names.
type Site struct {
	Stack *event.Stack // may be nil
	Look
	Component string
	Matches   bool // the filter's regular expression
	// class is that of its buffers outside of the region of traces.
	class *name.Class
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
	return a, n.MatchesRow(&a)
}

// MatchesRow reports whether the pattern of the filter matches a row: its site, its owner or its class.
func (n *Namer) MatchesRow(a *Row) bool {
	return a.Matches || n.Filter.Grep.MatchString(a.Owner.Path) || n.Filter.Grep.MatchString(a.Class().String())
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
	s := &Site{Stack: stack, class: name.ClassOf(frames, event.DRAM), Look: Look{Name: name.Of(frames), Callers: page.Callers(frames)}}
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

// Title is the name of a row, in one line, with the class of what is no tensor.
func (n *Namer) Title(a *Row, separator string) string { return n.title(a, a.Class(), separator) }

// Name is the title without the class, which has a field of its own in JSON documents.
func (n *Namer) Name(a *Row) string { return n.title(a, nil, " · ") }

func (n *Namer) title(a *Row, class *name.Class, separator string) string {
	op, call := class.Before(page.Clean(a.Name.Op), separator), page.Clean(a.Name.Call.String())
	if a.Name == (name.Name{}) {
		op = class.Before(Unknown(a.Stack, a.BeforeAttach), separator)
	}
	name := call + op
	if op != "" && call != "" {
		name = call + separator + op
	}
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
