// Package table makes lists of allocations: it groups, folds and orders rows, and writes them as text and
// as JSON, from one declaration of their columns.
package table

import (
	"cmp"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A Table adds up rows by group.
type Table struct {
	Names *alloc.Namer
	// By is the grouping, as alloc.GroupingOf names it.
	By string
	// Apart keeps rows that are added next apart from others of their groups.
	Apart  string
	groups page.Groups[alloc.Key, alloc.Row]
}

// Add adds a row to its groups by By. By stack, values in apart keep rows apart.
func (t *Table) Add(a *alloc.Row, apart ...any) {
	if t.By == "stack" {
		look := t.Names.Look(a, apart...)
		t.AddAs(a, look.Key, look)
		return
	}
	t.AddTo(a, alloc.GroupingOf(t.By).Keys(t.Names, a))
}

// AddTo adds equal parts of a row's bytes to groups with these names: one, or one for each of its chips.
func (t *Table) AddTo(a *alloc.Row, groups []string) {
	for i, text := range groups {
		one := a
		if len(groups) > 1 {
			part := *a
			part.Devices, part.Amounts, one = a.Devices[i:i+1], slices.Clone(a.Amounts), &part
			for j := range part.Amounts {
				part.Amounts[j].Bytes /= uint64(len(groups))
			}
		}
		key := alloc.Key{Text: text, Apart: t.Apart}
		t.AddAs(one, key, alloc.Look{Key: key})
	}
}

// AddAs adds a row to the group of a key. The first row of a group gives it its look.
func (t *Table) AddAs(a *alloc.Row, key alloc.Key, look alloc.Look) {
	sum, found := t.groups.Of(key)
	if found {
		sum.Add(a)
		return
	}
	site := *a.Site
	site.Look = look
	*sum = *a
	sum.Site, sum.Amounts = &site, slices.Clone(a.Amounts)
}

// Rows returns the groups in an order. If it is nil, the largest come first, and by size those of the largest
// allocations. If lines is true, a line with
// several call sites has one row.
func (t *Table) Rows(lines bool, order func(a, b *alloc.Row) int) []*alloc.Row {
	rows := alloc.Fold(t.groups.List, lines)
	switch {
	case order != nil:
	case t.By == "size":
		order = func(a, b *alloc.Row) int { return cmp.Compare(b.EachBytes(), a.EachBytes()) }
	default:
		order = Largest
	}
	slices.SortStableFunc(rows, order)
	return rows
}

// Title returns the title of a group, with the number of what is no tensor in it. By stack and by class,
// the title has that.
func (t *Table) Title(r *alloc.Row) string {
	if t.By == "stack" || t.By == "class" {
		return r.Text
	}
	return r.Text + r.Mix.Text()
}

// Largest orders rows by their bytes, the first measure first, then by their numbers and names.
func Largest(a, b *alloc.Row) int {
	bytes, countA, countB := 0, uint64(0), uint64(0)
	for i := range a.Amounts {
		bytes = cmp.Or(bytes, cmp.Compare(b.Amounts[i].Bytes, a.Amounts[i].Bytes))
		countA, countB = countA+a.Amounts[i].Count, countB+b.Amounts[i].Count
	}
	if order := cmp.Or(bytes, cmp.Compare(countB, countA), cmp.Compare(a.Text, b.Text)); order != 0 {
		return order // stacks are long
	}
	return cmp.Or(slices.Compare(a.Callers, b.Callers), page.CompareFrames(a.Stack.Frames(), b.Stack.Frames()))
}

// Named returns a row that is no call site.
func Named(text string, amounts ...memory.Amount) *alloc.Row {
	return &alloc.Row{Amounts: amounts, Site: &alloc.Site{Look: alloc.Look{Key: alloc.Key{Text: text}}}}
}

// Sum adds up the measures of rows.
func Sum(rows []*alloc.Row) *alloc.Row {
	sum := Named("")
	for _, r := range rows {
		if sum.Amounts == nil {
			sum.Amounts = make([]memory.Amount, len(r.Amounts))
		}
		for i := range r.Amounts {
			sum.Amounts[i].Add(r.Amounts[i])
		}
		sum.OldestNs = max(sum.OldestNs, r.OldestNs)
	}
	return sum
}
