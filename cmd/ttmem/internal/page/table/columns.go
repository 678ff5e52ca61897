package table

import (
	"fmt"
	"reflect"
	"slices"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// A Column is a figure or a property of rows. It is a field of their JSON objects, a column of their text,
// or both.
type Column struct {
	// Field is that of JSON, without a key for a column of the text only.
	document.Field
	value func(*alloc.Row) any
	// add adds the value to a column.
	add func(to *document.Column, r *alloc.Row)
	// alike is true if all rows with the same Like have the same value.
	alike bool

	// Head, Width and Text are of the text; Width is 0 for a field of JSON only.
	Head  string
	Width int
	Text  func(*alloc.Row) string
	// Style is that of the text; nil: none.
	Style func(*alloc.Row) page.Style
	// Spare columns are left out if a terminal is too narrow, and those with Has if no row has a value.
	Spare bool
	Has   func(*alloc.Row) bool
}

// Columns are the columns of a list.
type Columns []Column

// Field returns a field of JSON objects.
func Field[T any](key, about string, value func(*alloc.Row) T) Column {
	c := Column{value: func(r *alloc.Row) any { return value(r) }, add: adder(value)}
	c.Key, c.Type, c.About = key, reflect.TypeFor[T](), about
	return c
}

// adder returns a function that adds a value to a column. Values of the types of most fields need no memory.
func adder[T any](value func(*alloc.Row) T) func(*document.Column, *alloc.Row) {
	switch value := any(value).(type) {
	case func(*alloc.Row) string:
		return func(to *document.Column, r *alloc.Row) { to.Text(value(r)) }
	case func(*alloc.Row) uint64:
		return func(to *document.Column, r *alloc.Row) { to.Uint(value(r)) }
	case func(*alloc.Row) int:
		return func(to *document.Column, r *alloc.Row) { to.Int(int64(value(r))) }
	case func(*alloc.Row) bool:
		return func(to *document.Column, r *alloc.Row) { to.Bool(value(r)) }
	case func(*alloc.Row) []int:
		return func(to *document.Column, r *alloc.Row) { to.Ints(value(r)) }
	case func(*alloc.Row) int32:
		return func(to *document.Column, r *alloc.Row) { to.Int(int64(value(r))) }
	case func(*alloc.Row) uint16:
		return func(to *document.Column, r *alloc.Row) { to.Uint(uint64(value(r))) }
	}
	return func(to *document.Column, r *alloc.Row) { to.Value(reflect.ValueOf(value(r))) }
}

// Optional returns a field that is left out where it is empty.
func Optional[T any](key, about string, value func(*alloc.Row) T) Column {
	return Field(key, about, value).OrNone()
}

// If returns a field of a number that not all rows have.
func If(key, about string, value func(*alloc.Row) (n uint64, has bool)) Column {
	c := Optional(key, about, func(r *alloc.Row) *uint64 {
		if n, has := value(r); has {
			return &n
		}
		return nil
	})
	c.add = func(to *document.Column, r *alloc.Row) { to.UintIf(value(r)) }
	return c
}

// Shown returns the column with a place in the text.
func (c Column) Shown(head string, width int, text func(*alloc.Row) string) Column {
	c.Head, c.Width, c.Text = head, width, text
	return c
}

// Text returns a column of the text only.
func Text(head string, width int, text func(*alloc.Row) string) Column {
	return Column{}.Shown(head, width, text)
}

// OrNone returns the field as one that is left out where it is empty.
func (c Column) OrNone() Column {
	c.OmitEmpty, c.Optional = true, true
	return c
}

// Alike returns the columns as those that have the same value in all rows with the same Like.
func Alike(columns ...Column) Columns {
	for i := range columns {
		columns[i].alike = true
	}
	return columns
}

// As returns the field with another key.
func (c Column) As(key string) Column {
	c.Key = key
	return c
}

// Values returns the field of a text as one whose values docs/schema.json describes by a name.
func (c Column) Values(name string) Column {
	c.Tag = reflect.StructTag(`schema:"` + name + `"`)
	return c
}

// WithWall returns the field of a time as one with the same time by the wall clock beside it.
func (c Column) WithWall(key string) Column {
	c.Wall = key
	return c
}

// IfRoom returns the column as one that a narrow terminal has no room for.
func (c Column) IfRoom() Column {
	c.Spare = true
	return c
}

// IfAny returns the column as one that the text leaves out if no row has a value.
func (c Column) IfAny(has func(*alloc.Row) bool) Column {
	c.Has = has
	return c
}

// Bytes returns the bytes of a measure.
func Bytes(key, about string, measure int) Column {
	return Field(key, about, func(r *alloc.Row) uint64 { return r.Amounts[measure].Bytes })
}

// Count returns the number of allocations of a measure.
func Count(key, about string, measure int) Column {
	return Field(key, about, func(r *alloc.Row) uint64 { return r.Amounts[measure].Count })
}

// Share returns the share that a measure's bytes have of a whole.
func Share(head string, width, measure int, whole uint64) Column {
	return Text(head, width, func(r *alloc.Row) string { return page.Percent(r.Amounts[measure].Bytes, whole) })
}

// AsBytes writes the bytes of a measure.
func AsBytes(measure int, format func(uint64) string) func(*alloc.Row) string {
	return func(r *alloc.Row) string { return format(r.Amounts[measure].Bytes) }
}

// AsCount writes the number of allocations of a measure.
func AsCount(measure int) func(*alloc.Row) string {
	return func(r *alloc.Row) string { return fmt.Sprint(r.Amounts[measure].Count) }
}

// The properties of rows, as JSON objects have them.
var (
	Key          = Field("key", "the group", func(r *alloc.Row) string { return r.Text })
	PID          = pidField()
	Devices      = Field("devices", "the chips", func(r *alloc.Row) []int { return r.Devices })
	Device       = Optional("device", "the chip", func(r *alloc.Row) *int { return first(r.Devices) })
	Region       = Field("region", "the region of memory", func(r *alloc.Row) string { return r.Region.String() }).Values("region")
	Layout       = Field("layout", "", func(r *alloc.Row) string { return r.Layout }).Values("layout")
	StaticKind   = Field("static_kind", "", func(r *alloc.Row) string { return r.Layout }).Values("static_kind")
	BeforeAttach = Optional("before_attach", "allocated before ttmem attached", func(r *alloc.Row) bool { return r.BeforeAttach })
	Owner        = Optional("owner", "the path that leads to it in the process", func(r *alloc.Row) string { return r.Owner.Path })
	Tensor       = Optional("tensor", "the tensor at that path", func(r *alloc.Row) string { return r.Owner.Tensor })
	Callers      = Optional("callers", "the user's calls that led to the innermost one, innermost first", func(r *alloc.Row) []string { return r.Callers })
	Oldest       = Field("oldest_ns", "the largest known age", func(r *alloc.Row) uint64 { return r.OldestNs })
	// Class is of call sites, and MixClass of groups.
	Class     = Optional("class", "", func(r *alloc.Row) string { return r.Class().String() }).Values("class")
	MixClass  = Optional("class", "", func(r *alloc.Row) string { return r.Mix.Class().String() }).Values("class")
	Op        = Optional("op", "the operation", func(r *alloc.Row) string { return r.Name.Op })
	Component = Optional("component", "the part of the program, by rules or the folder", func(r *alloc.Row) string { return r.Component })
	Stack     = Optional("stack", "the call stack, innermost frame first", func(r *alloc.Row) *event.Stack { return r.Stack })
)

func pidField() Column {
	c := Field("pid", "the process", func(r *alloc.Row) int { return r.PID })
	c.User = "user"
	return c
}

// first returns the first of a list; nil without one.
func first[T any](list []T) *T {
	if len(list) == 0 {
		return nil
	}
	return &list[0]
}

// Name returns the name of a row's call site.
func Name(n *alloc.Namer) Column {
	return Field("name", "the line and the operation", n.Name)
}

// Site returns the fields that name an allocation.
func Site(n *alloc.Namer) Columns {
	return slices.Concat(Alike(
		Name(n), Op,
		Optional("function", "the function of the line", func(r *alloc.Row) string { return r.Name.Call.Function }),
		Optional("file", "the file of the line", func(r *alloc.Row) string { return r.Name.Call.File }),
		Optional("line", "the number of the line", func(r *alloc.Row) int { return r.Name.Call.Line }),
		Callers, Component,
	), Columns{Class}, Alike(Stack))
}

// Limited returns the first rows, or all if the limit is 0, and the sum of the others; nil without others.
func Limited(rows []*alloc.Row, limit int) (shown []*alloc.Row, rest *alloc.Row) {
	shown, omitted := page.First(rows, limit)
	if omitted > 0 {
		rest = Sum(rows[len(shown):])
		rest.Text = fmt.Sprintf("and %s more: -n 0 lists all", page.Grouped(omitted))
	}
	return shown, rest
}
