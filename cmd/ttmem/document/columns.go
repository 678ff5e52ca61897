package document

import (
	"encoding/binary"
	"io"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// WriteColumns writes a value as Write does, but a Columnar list as columns: in the document, in place of the
// list, it has the number of rows and a head for each column, whose values stand once each. The numbers of the
// columns, indices of values or themselves, follow the line of the document in little endian, one column after
// the other, and before those of a column with missing values a byte for each row, which is 1 where it has none.
func WriteColumns(w io.Writer, v any, add Supplement) error {
	e := &encoder{to: w, add: add, asColumns: true}
	e.value(v)
	e.text = append(e.text, '\n')
	for _, list := range e.lists {
		for _, c := range list.all() {
			e.numbers(c)
		}
	}
	e.flush()
	return e.err
}

// Columnar is an iter.Seq of objects that adds their values to columns.
type Columnar interface{ AddTo(to *Columns) }

// Columns are the columns of a list.
type Columns struct {
	list []*Column
	add  Supplement
}

// New adds a column for the values of a field.
func (c *Columns) New(f *Field) *Column {
	one := newColumn(f, c.add)
	c.list = append(c.list, one)
	return one
}

// Rows returns the number of rows.
func (c *Columns) Rows() int {
	if len(c.list) == 0 {
		return 0
	}
	return c.list[0].rows
}

// all returns the columns that have a value, each with what stands beside it.
func (c *Columns) all() (list []*Column) {
	for _, one := range c.list {
		for _, some := range []*Column{one, one.wall, one.user} {
			if some != nil && some.kind != "" {
				list = append(list, some)
			}
		}
	}
	return list
}

// A Column has a field's values, without those that a document leaves out. Texts and what is neither text nor
// number are listed once each: the column has their indices. A column of equal values has no numbers.
type Column struct {
	key, kind  string // of values: int, uint, bool, text or json; "" if there is none
	omitted    bool   // if they are empty
	rows       int
	missing    []byte   // 1 where there is no value; nil if each row has one
	first      uint64   // the first value
	values     []uint64 // nil as long as all are equal to the first
	texts      []string
	indices    map[string]uint64
	ints       []int // the latest list
	add        Supplement
	wall, user *Column
}

func newColumn(f *Field, add Supplement) *Column {
	c := &Column{key: f.Key, omitted: f.OmitEmpty || f.OmitZero, add: add}
	if add != nil && f.Wall != "" {
		c.wall = &Column{key: f.Wall}
	}
	if add != nil && f.User != "" {
		c.user = &Column{key: f.User}
	}
	return c
}

// None adds no value.
func (c *Column) None() {
	if c.missing == nil {
		c.missing = make([]byte, c.rows, c.rows+1)
	}
	c.missing = append(c.missing, 1)
	c.push(c.first)
	if c.wall != nil {
		c.wall.None()
	}
	if c.user != nil {
		c.user.None()
	}
}

func (c *Column) push(v uint64) {
	if c.values == nil && v != c.first {
		c.values = make([]uint64, c.rows, max(1024, 2*c.rows))
		for i := range c.values {
			c.values[i] = c.first
		}
	}
	if c.values != nil {
		if len(c.values) == cap(c.values) {
			c.values = slices.Grow(c.values, len(c.values)) // append would copy a large one more often
		}
		c.values = append(c.values, v)
	}
	c.rows++
}

// A Cell is a value of a column, to be added again.
type Cell struct {
	number uint64
	none   bool
}

// Last returns the value that was added last.
func (c *Column) Last() Cell {
	if c.missing != nil && c.missing[c.rows-1] == 1 {
		return Cell{none: true}
	}
	return Cell{number: c.latest()}
}

// Again adds a value of this column.
func (c *Column) Again(one Cell) {
	if one.none {
		c.None()
		return
	}
	c.number(c.kind, one.number)
}

// number adds a value of a kind.
func (c *Column) number(kind string, v uint64) {
	if c.kind == "" {
		c.kind, c.first = kind, v
	} else if kind == "uint" {
		c.kind = kind
	}
	if c.missing != nil {
		c.missing = append(c.missing, 0)
	}
	c.push(v)
}

// Uint adds a number.
func (c *Column) Uint(v uint64) {
	if c.omitted && v == 0 {
		c.None()
		return
	}
	c.uint(v)
}

func (c *Column) uint(v uint64) {
	if v > math.MaxInt64 {
		c.number("uint", v)
	} else {
		c.number("int", v)
	}
	if c.wall != nil {
		if wall := c.add.Wall(v); v > 0 && wall > 0 {
			c.wall.number("int", uint64(wall))
		} else {
			c.wall.None()
		}
	}
}

// Int adds a number.
func (c *Column) Int(v int64) {
	if c.omitted && v == 0 {
		c.None()
		return
	}
	c.int(v)
}

func (c *Column) int(v int64) {
	same := c.rows > 0 && c.Last() == Cell{number: uint64(v)}
	c.number("int", uint64(v))
	switch {
	case c.user == nil:
	case same:
		c.user.Again(c.user.Last())
	default:
		if user := c.add.User(int(v)); user != "" {
			c.user.Text(user)
		} else {
			c.user.None()
		}
	}
}

// Text adds a text.
func (c *Column) Text(v string) {
	if c.omitted && v == "" {
		c.None()
		return
	}
	c.text("text", v)
}

// text adds a text, or the JSON of another value.
func (c *Column) text(kind, v string) {
	if latest := c.latest(); latest < uint64(len(c.texts)) && c.texts[latest] == v {
		c.number(kind, latest)
		return
	}
	if c.indices == nil {
		c.indices = make(map[string]uint64)
	}
	i, known := c.indices[v]
	if !known {
		i = uint64(len(c.texts))
		c.indices[v], c.texts = i, append(c.texts, v)
	}
	c.number(kind, i)
}

// latest returns the latest number.
func (c *Column) latest() uint64 {
	if n := len(c.values); n > 0 {
		return c.values[n-1]
	}
	return c.first
}

// Ints adds a list.
func (c *Column) Ints(v []int) {
	if c.kind != "" && !c.omitted && slices.Equal(v, c.ints) {
		c.number("json", c.latest())
		return
	}
	c.ints = v
	c.Value(reflect.ValueOf(v))
}

// Value adds a value of any type.
func (c *Column) Value(v reflect.Value) {
	if c.omitted && (v.IsZero() || v.Kind() == reflect.Slice && v.Len() == 0) || v.Kind() == reflect.Pointer && v.IsNil() {
		c.None()
		return
	}
	number := v
	if v.Kind() == reflect.Pointer {
		number = v.Elem()
	}
	switch number.Kind() {
	case reflect.Bool:
		if number.Bool() {
			c.number("bool", 1)
		} else {
			c.number("bool", 0)
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.uint(number.Uint())
	case reflect.Int, reflect.Int32, reflect.Int64:
		c.int(number.Int())
	default:
		c.text("json", string(Append(nil, v.Interface(), nil)))
	}
}

// width returns how many bytes of a number are written: enough for an index, and 8 of others than truth values.
func (c *Column) width() int {
	switch {
	case c.values == nil:
		return 0
	case c.kind == "bool":
		return 1
	case c.texts == nil:
		return 8
	case len(c.texts) <= math.MaxUint8:
		return 1
	case len(c.texts) <= math.MaxUint16:
		return 2
	}
	return 4
}

// listed returns the values that its head has: texts or JSON.
func (c *Column) listed() []string {
	switch {
	case c.texts != nil || c.values != nil:
		return c.texts
	case c.kind == "bool":
		return []string{strconv.FormatBool(c.first != 0)}
	case c.kind == "uint":
		return []string{strconv.FormatUint(c.first, 10)}
	}
	return []string{strconv.FormatInt(int64(c.first), 10)}
}

// columns writes the heads of the columns of a list.
func (e *encoder) columns(of Columnar) {
	list := &Columns{add: e.add}
	of.AddTo(list)
	e.lists = append(e.lists, list)
	e.text = append(append(e.text, `{"rows":`...), strconv.Itoa(list.Rows())...)
	e.text = append(e.text, `,"columns":[`...)
	for i, c := range list.all() {
		e.item(i == 0)
		e.text = append(append(e.text, `{"key":"`...), c.key...)
		e.text = append(append(e.text, `","kind":"`...), c.kind...)
		e.text = append(append(e.text, `","width":`...), strconv.Itoa(c.width())...)
		e.text = append(append(e.text, `,"missing":`...), strconv.FormatBool(c.missing != nil)...)
		if texts := c.listed(); texts != nil {
			e.text = append(e.text, `,"values":[`...)
			for i, one := range texts {
				if e.item(i == 0); c.kind == "text" {
					e.string(one)
				} else {
					e.text = append(e.text, one...)
				}
			}
			e.text = append(e.text, ']')
		}
		e.text = append(e.text, '}')
	}
	e.text = append(e.text, "]}"...)
}

// numbers writes where a column has no value, and its numbers.
func (e *encoder) numbers(c *Column) {
	e.text = append(e.text, c.missing...)
	width := c.width()
	for _, v := range c.values {
		switch width {
		case 1:
			e.text = append(e.text, byte(v))
		case 2:
			e.text = binary.LittleEndian.AppendUint16(e.text, uint16(v))
		case 4:
			e.text = binary.LittleEndian.AppendUint32(e.text, uint32(v))
		default:
			e.text = binary.LittleEndian.AppendUint64(e.text, v)
		}
		if len(e.text) > part {
			e.flush()
		}
	}
}
