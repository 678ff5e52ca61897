package alloc

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
)

// OwnRows is how many call sites with the same innermost line have rows of their own.
const OwnRows = 2

// A Key is the same for allocations that look alike.
type Key struct {
	// Text is the group, or the line and the operation of a call site, or the reason why both are
	// unknown.
	Text string
	// Apart keeps rows apart, such as those of two regions.
	Apart string
	// Calls are the callers.
	Calls string
}

// A Look is the part of a call site that a page shows beside its figures. Call sites with the same Look
// share a row.
type Look struct {
	Key
	Name name.Name
	// Callers are the user's calls around the innermost one, innermost first. Many replaces them
	// in the row of a line: "6 callers".
	Callers []string
	Many    string
	// Caller distinguishes call sites with the same text; Distinguish sets it.
	Caller string
	// shared is true if other call sites of its line share a row: its caller tells it apart.
	shared bool
	// Sites is the number of rows that a row of a line replaces; 0 in other rows.
	Sites int
	// Class is what the buffers are for; nil if that is not known, and for circular buffers.
	Class     *name.Class
	component string
}

// Look is the look of a row. It differs from the look of rows with other values in apart.
func (n *Namer) Look(a *Row, apart ...any) Look {
	l := a.Look
	l.Class = a.Class()
	text := n.Title(a, " · ")
	if a.Stack == nil && a.Owner.Path != "" {
		text = HeldBy(a.Owner, " · ")
	}
	l.Key = Key{text, fmt.Sprintln(append(apart, l.Class)...), strings.Join(l.Callers, "\n")}
	if n.Rules != nil {
		l.component = page.Clean(a.Component)
	}
	return l
}

// A line is the same for call sites that may share the row of a line.
type line struct {
	apart, component string
	call             name.Call
}

func (l *Look) line() line { return line{l.Apart, l.component, l.Name.Call} }

// Op is the operation, and before it the class of what is no tensor: "kernel binaries · ttnn.add".
func (l *Look) Op(separator string) string { return l.Class.Before(page.Clean(l.Name.Op), separator) }

// Has reports whether the row with this Look includes the call site with another one, or has its line.
func (l *Look) Has(one Look) bool {
	return l.Key == one.Key || l.Sites > 0 && l.line() == one.line()
}

// SitesOf are the sites of rows.
func SitesOf(rows []*Row) iter.Seq[*Site] {
	return func(yield func(*Site) bool) {
		for _, r := range rows {
			if !yield(r.Site) {
				return
			}
		}
	}
}

// Distinguish gives call sites with the same text the callers in which they differ: the innermost line
// may be a helper with many callers.
func Distinguish(sites iter.Seq[*Site]) {
	var looks []*Look
	depth := 0
	for s := range sites {
		l := &s.Look
		l.Caller, looks, depth = "", append(looks, l), max(depth, len(l.Callers))
	}
	for at := range depth {
		call := func(l *Look) string {
			if at < len(l.Callers) {
				return l.Callers[at]
			}
			return ""
		}
		var groups page.Groups[[3]string, []*Look]
		for _, l := range looks {
			same, _ := groups.Of([3]string{l.Apart, l.Text, l.Caller})
			*same = append(*same, l)
		}
		for _, same := range groups.List {
			if !slices.ContainsFunc(*same, func(l *Look) bool { return call(l) != call((*same)[0]) }) {
				continue
			}
			for _, l := range *same {
				if text := call(l); text != "" {
					l.Caller = strings.TrimPrefix(l.Caller+", "+text, ", ")
				}
			}
		}
	}
	for _, l := range looks {
		if l.Caller = cmp.Or(l.Many, l.Caller); l.Caller == "" && l.shared && len(l.Callers) > 0 {
			l.Caller = l.Callers[0]
		}
	}
}

// Fold adds up rows that look alike. If lines is true, an innermost line with many rows has one for its small
// ones: those with a quarter of its bytes at most, by the first measure. Rows are in the order of their first
// ones, to which it adds the others. The rows have Sites of their own.
func Fold(rows []*Row, lines bool) []*Row {
	rows = united(rows)
	if !lines {
		return rows
	}
	var shared page.Groups[line, []*Row]
	for _, r := range rows {
		if r.Name.Call.Line > 0 {
			of, _ := shared.Of(r.line())
			*of = append(*of, r)
		}
	}
	for _, of := range shared.List {
		if len(*of) <= OwnRows {
			continue
		}
		all := Total(*of).Bytes
		small := slices.DeleteFunc(slices.Clone(*of), func(r *Row) bool { return r.Amounts[0].Bytes > all/4 })
		if len(small) > 1 {
			one := ofLine(small, len(small) < len(*of))
			for _, r := range *of {
				r.shared = true
			}
			for _, r := range small {
				r.Look = one
			}
		}
	}
	return united(rows)
}

// Total is the sum of the first measures of rows.
func Total(rows []*Row) (sum memory.Amount) {
	for _, r := range rows {
		sum.Add(r.Amounts[0])
	}
	return sum
}

// united adds up rows that look alike.
func united(rows []*Row) (list []*Row) {
	known := make(map[Key]*Row, len(rows))
	for _, r := range rows {
		if sum := known[r.Key]; sum != nil {
			sum.Add(r)
		} else {
			known[r.Key], list = r, append(list, r)
		}
	}
	return list
}

// ofLine is the look of a line with the call sites of these rows; others is true if it has more.
func ofLine(rows []*Row, others bool) Look {
	one := rows[0].Look
	one.Sites = len(rows)
	callers, ops := make(map[string]bool), make(map[string]bool)
	for _, r := range rows {
		callers[r.Calls], ops[r.Name.Op] = true, true
	}
	one.Text = page.Clean(one.Name.Call.String())
	if len(callers) > 1 {
		noun := "caller"
		if others {
			noun = "other caller"
		}
		one.Callers, one.Calls, one.Many = nil, "", page.Count(uint64(len(callers)), noun)
		one.Text += " ← " + one.Many
	}
	if len(ops) > 1 {
		one.Name.Op = page.Count(uint64(len(ops)), "operation")
	}
	for _, part := range []string{one.Op(" · "), one.component} {
		if part != "" {
			one.Text += " · " + part
		}
	}
	return one
}
