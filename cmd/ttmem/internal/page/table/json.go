package table

import (
	"reflect"
	"sync"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
)

// A Declaration has, as its zero value, all the columns that a list may have.
type Declaration interface{ Columns() Columns }

// An Object is a row of a JSON document, in a list that D declares.
type Object[D Declaration] struct {
	Columns Columns
	Row     *alloc.Row
}

// Fields are the fields of its object: see package document.
func (o Object[D]) Fields(yield func(*document.Field, any) bool) {
	for i := range o.Columns {
		if c := &o.Columns[i]; c.Key != "" && !yield(&c.Field, c.value(o.Row)) {
			return
		}
	}
}

// Declared are the fields that it may have.
func (Object[D]) Declared() (fields []document.Field) {
	var d D
	for _, c := range d.Columns() {
		if c.Key != "" {
			c.Of, c.Name = reflect.TypeFor[D](), c.Key
			fields = append(fields, c.Field)
		}
	}
	return fields
}

// Objects are rows of a JSON document.
func Objects[D Declaration](columns Columns, rows []*alloc.Row) []Object[D] {
	return page.Each(rows, func(r *alloc.Row) Object[D] { return Object[D]{columns, r} })
}

// A Seq yields the rows of a JSON document, all with the same columns.
type Seq[D Declaration] func(yield func(Object[D]) bool)

// A part is a column of a list, with what adds the values of rows to it.
type part struct {
	*document.Column
	add func(to *document.Column, r *alloc.Row)
}

// AddTo adds the rows to columns: see package document. Several goroutines do it, each for some of the columns.
func (s Seq[D]) AddTo(to *document.Columns) {
	var own [2][]part
	var alike []part
	s(func(o Object[D]) bool {
		for i := range o.Columns {
			c := &o.Columns[i]
			made := to.New(&c.Field)
			if made == nil {
				continue
			}
			list := &own[i%2]
			if c.alike {
				list = &alike
			}
			*list = append(*list, part{made, c.add})
		}
		return false
	})
	var others sync.WaitGroup
	others.Go(func() { s.add(own[0]) })
	others.Go(func() { s.add(own[1]) })
	s.addAlike(alike)
	others.Wait()
}

// add adds all rows.
func (s Seq[D]) add(to []part) {
	for o := range s {
		for _, c := range to {
			c.add(c.Column, o.Row)
		}
	}
}

// addAlike adds all rows to columns that have the same value in all rows with the same Like.
func (s Seq[D]) addAlike(to []part) {
	known := make(map[*alloc.Row]uint32)
	var first []uint32 // of each row: which of those that differ in these columns
	differ := uint32(0)
	for o := range s {
		i, again := known[o.Row.Like]
		if !again || o.Row.Like == nil {
			for _, c := range to {
				c.add(c.Column, o.Row)
			}
			i = differ
			known[o.Row.Like] = i
			differ++
		}
		first = append(first, i)
	}
	for _, c := range to {
		c.Spread(first)
	}
}
