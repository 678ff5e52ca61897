package table

import (
	"reflect"

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

// AddTo adds the rows to columns: see package document.
func (s Seq[D]) AddTo(to *document.Columns) {
	type column struct {
		*document.Column
		add func(to *document.Column, r *alloc.Row)
	}
	var own, alike []column
	known := make(map[*alloc.Row]uint32)
	var first []uint32 // of each row: which of those that differ in the columns of alike
	differ := uint32(0)
	for o := range s {
		if len(first) == 0 {
			for i := range o.Columns {
				c, list := &o.Columns[i], &own
				if c.alike {
					list = &alike
				}
				if made := to.New(&c.Field); made != nil {
					*list = append(*list, column{made, c.add})
				}
			}
		}
		for _, c := range own {
			c.add(c.Column, o.Row)
		}
		i, again := known[o.Row.Like]
		if !again || o.Row.Like == nil {
			for _, c := range alike {
				c.add(c.Column, o.Row)
			}
			i = differ
			known[o.Row.Like] = i
			differ++
		}
		first = append(first, i)
	}
	for _, c := range alike {
		c.Spread(first)
	}
}
