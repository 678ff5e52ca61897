package top

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"regexp"
	"strings"
	"sync"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// A site is what is looked up for a call stack.
type site struct {
	alloc.Site
	// key is the same for stacks with the same lines: a line may have several calls.
	key string
	// caller is the user's own call around the one in the name.
	caller name.Call
	// matches is whether the user's pattern matches.
	pattern string
	matches bool
}

// sites are the sites of call stacks with something live.
type sites struct {
	rules *name.Rules

	mu    sync.Mutex
	known map[uint64]*site
}

// prepare looks up the wanted stacks and forgets the others. Looking up a stack of a running
// process may take a while, so the goroutine that answers keys must not call it.
func (s *sites) prepare(list []aggregate.CallSite, wanted func(i int) bool) {
	s.mu.Lock()
	old := s.known
	s.mu.Unlock()
	known := make(map[uint64]*site)
	for i := range list {
		stack := list[i].Stack
		if stack == nil || !wanted(i) || known[stack.ID] != nil {
			continue
		}
		one := old[stack.ID]
		if one == nil {
			one = s.name(stack)
		}
		known[stack.ID] = one
	}
	s.mu.Lock()
	s.known = known
	s.mu.Unlock()
}

func keyOf(frames []event.Frame) string {
	h := fnv.New128a()
	for i := range frames {
		f := &frames[i]
		fmt.Fprintf(h, "%s\x00%s\x00%d\x00%s\x00", f.Name, f.File, f.Line, f.Module)
		if f.Name == "" {
			fmt.Fprintf(h, "%d", f.Address)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (s *sites) name(stack *event.Stack) *site {
	frames := stack.Frames()
	names := alloc.Namer{Rules: s.rules}
	one := &site{Site: *names.NewSite(stack), key: keyOf(frames)}
	if calls := name.UserCalls(frames); len(calls) > 1 {
		one.caller = calls[1]
	}
	return one
}

// nowhere is the site of call sites without a stack.
var nowhere = &site{}

// of returns the site of a stack.
func (s *sites) of(stack *event.Stack) *site {
	if stack == nil {
		return nowhere
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.known[stack.ID]
	if one == nil {
		one = s.name(stack)
		if s.known == nil {
			s.known = make(map[uint64]*site)
		}
		s.known[stack.ID] = one
	}
	return one
}

// match reports whether the pattern matches the name, the component or a frame of a stack.
// text is the pattern as the user typed it.
func (s *sites) match(stack *event.Stack, text string, pattern *regexp.Regexp) bool {
	one := s.of(stack)
	if one == nowhere {
		return false
	}
	if one.pattern == text {
		return one.matches
	}
	one.pattern, one.matches = text, one.MatchedBy(pattern)
	return one.matches
}

// patternOf is the regular expression that the user means: as in other viewers it looks
// for capitals only where it has one, and what is no regular expression is looked for
// as it is.
func patternOf(text string) *regexp.Regexp {
	flags := ""
	if strings.ToLower(text) == text {
		flags = "(?i)"
	}
	pattern, err := regexp.Compile(flags + text)
	if err != nil {
		pattern = regexp.MustCompile(flags + regexp.QuoteMeta(text))
	}
	return pattern
}
