package main

import (
	"ttmem/aggregate"
	"ttmem/cmd/ttmem/page"
)

// tellSitesApart gives sites of the same name the callers in which they differ.
func tellSitesApart(sites []*site) {
	list := make([]*page.Site, len(sites))
	for i, s := range sites {
		list[i] = &page.Site{Key: s.name.String(), Calls: page.CallTexts(aggregate.OwnCalls(s.stack.Frames()))}
	}
	page.Distinguish(list)
	for i, s := range sites {
		s.caller = list[i].Caller
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
