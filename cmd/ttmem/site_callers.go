package main

import (
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
)

// tellSitesApart gives sites of the same name the callers in which they differ: a helper
// that allocates for others is not who holds.
func tellSitesApart(sites []*site) {
	list := make([]source, len(sites))
	for i, s := range sites {
		list[i] = source{name: s.name, calls: page.CallTexts(name.UserCalls(s.stack.Frames()))}
	}
	tellApart(list)
	for i, s := range sites {
		s.caller = list[i].caller
	}
}

// withCaller is the title of what is of a site, with the caller that tells it from
// another one.
func (s *site) withCaller(title string) string {
	if s == nil || s.caller == "" {
		return title
	}
	return title + ", from " + s.caller
}
