package alloc

import (
	"fmt"
	"strings"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
)

// OwnRows is how many call sites with the same innermost line have rows of their own.
const OwnRows = 2

// A Look is what a page shows of a call site apart from its figures. Call sites that look alike
// share a row.
type Look struct {
	// Text is the line and the operation, or the reason why both are unknown.
	Text string
	Name name.Name
	// Callers are the user's calls around the innermost one, innermost first. Many replaces them
	// in the row of a line: "6 callers".
	Callers []string
	Many    string
	// Sites is the number of rows that a row of a line replaces; 0 in other rows.
	Sites int
	// Apart keeps rows apart, such as those of two regions.
	Apart     string
	component string
}

// Look is the look of a row. It differs from the look of rows with other values in apart.
func (n *Namer) Look(a *Row, apart ...any) Look {
	l := Look{Text: n.Title(a, " · "), Name: a.Name, Callers: page.Callers(a.Stack.Frames()), Apart: fmt.Sprintln(apart...)}
	if n.Rules != nil {
		l.component = page.Clean(a.Component)
	}
	return l
}

// key is the same for call sites that look alike.
func (l *Look) key() string {
	return strings.Join(append([]string{l.Apart, l.Text}, l.Callers...), "\n")
}

// Fold adds up rows that look alike. If lines is true, an innermost line with several other rows
// has one row, too. Rows are in the order of their first ones.
func Fold[T any](rows []T, lines bool, look func(*T) *Look, add func(sum, row *T)) []T {
	rows = united(rows, look, add)
	if !lines {
		return rows
	}
	type line struct {
		apart, component string
		call             name.Call
	}
	shared := make(map[line][]*Look)
	for i := range rows {
		if l := look(&rows[i]); l.Name.Call.Line > 0 {
			at := line{l.Apart, l.component, l.Name.Call}
			shared[at] = append(shared[at], l)
		}
	}
	for _, looks := range shared {
		if len(looks) > OwnRows {
			one := ofLine(looks)
			for _, l := range looks {
				*l = one
			}
		}
	}
	return united(rows, look, add)
}

// united adds up rows that look alike.
func united[T any](rows []T, look func(*T) *Look, add func(sum, row *T)) (list []T) {
	index := make(map[string]int)
	for i := range rows {
		key := look(&rows[i]).key()
		at, found := index[key]
		if !found {
			index[key] = len(list)
			list = append(list, rows[i])
			continue
		}
		add(&list[at], &rows[i])
	}
	return list
}

// ofLine is the look of a line with these call sites.
func ofLine(looks []*Look) Look {
	one := *looks[0]
	one.Sites = len(looks)
	callers, ops := make(map[string]bool), make(map[string]bool)
	for _, l := range looks {
		callers[strings.Join(l.Callers, "\n")], ops[l.Name.Op] = true, true
	}
	one.Text = page.Clean(one.Name.Call.String())
	if len(callers) > 1 {
		one.Callers, one.Many = nil, page.Count(uint64(len(callers)), "caller")
		one.Text += " ← " + one.Many
	}
	if len(ops) > 1 {
		one.Name.Op = page.Count(uint64(len(ops)), "operation")
	}
	for _, part := range []string{page.Clean(one.Name.Op), one.component} {
		if part != "" {
			one.Text += " · " + part
		}
	}
	return one
}
