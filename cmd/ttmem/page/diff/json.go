package diff

import (
	"io"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
)

// Document is what `ttmem diff --json` prints.
type Document struct {
	V int  `json:"v"`
	A file `json:"a"`
	B file `json:"b"`
	// Totals are by chip and region, and Groups as --by says.
	Totals []Total  `json:"totals"`
	By     string   `json:"by"`
	Groups []*Group `json:"groups"`
	// Same is how many groups are left out because they do not differ, and Omitted how many
	// because of -n.
	Same    int `json:"same"`
	Omitted int `json:"omitted"`
}

type file struct {
	File   string `json:"file"`
	Moment string `json:"moment"`
	memory.AllLosses
}

func (d *Difference) WriteJSON(w io.Writer) error {
	of := func(s *Side) file { return file{s.Path, s.Moment, s.Losses} }
	doc := &Document{V: 1, A: of(d.a), B: of(d.b), Totals: d.Totals, By: d.by, Groups: d.Groups, Same: d.Same, Omitted: d.cutOff}
	if doc.Totals == nil {
		doc.Totals = []Total{}
	}
	if doc.Groups == nil {
		doc.Groups = []*Group{}
	}
	return page.JSON(w, doc)
}
