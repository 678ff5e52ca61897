package document

import (
	"bytes"
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
			if some != nil && some.kind != none {
				list = append(list, some)
			}
		}
	}
	return list
}

// A Column has a field's values, without those that a document leaves out. Texts and what is neither text nor
// number are listed once each: the column has their indices. A column of equal values has no numbers.
type Column struct {
	key     string
	kind    kind // of values; none if there is none
	omitted bool // if they are empty
	rows    int
	missing []byte // 1 where there is no value; nil if each row has one, or none has
	// first and latest are values. Others have width bytes each, in little endian, in parts of partRows; width is 0
	// as long as all are equal to the first.
	first, latest uint64
	width         int
	parts         [][]byte
	texts         []string
	indices       map[string]uint64
	ints          []int // the latest list
	add           Supplement
	wall, user    *Column
}

// A kind is that of the values of a column.
type kind int

const (
	none kind = iota
	signed
	unsigned
	truth
	text
	other
)

func (k kind) String() string { return [...]string{"", "int", "uint", "bool", "text", "json"}[k] }

// partRows is how many rows have their values in one part: a column grows without being copied.
const partRows = 1 << 13

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
	if c.kind != none {
		if c.missing == nil {
			c.missing = make([]byte, c.rows, c.rows+partRows)
		}
		c.missing = append(c.missing, 1)
	}
	c.push(c.first)
	if c.wall != nil {
		c.wall.None()
	}
	if c.user != nil {
		c.user.None()
	}
}

func (c *Column) push(v uint64) {
	c.latest = v
	if c.width == 0 && v == c.first {
		c.rows++
		return
	}
	if width := c.widthOf(v); width > c.width {
		c.widen(width)
	}
	if c.rows%partRows == 0 {
		c.parts = append(c.parts, make([]byte, 0, partRows*c.width))
	}
	c.append(&c.parts[len(c.parts)-1], v)
	c.rows++
}

// widthOf returns how many bytes a number takes: as many as an index needs, and 8 of others than truth values.
func (c *Column) widthOf(v uint64) int {
	switch {
	case c.kind == signed || c.kind == unsigned:
		return 8
	case v <= math.MaxUint8:
		return 1
	case v <= math.MaxUint16:
		return 2
	}
	return 4
}

func (c *Column) append(to *[]byte, v uint64) {
	switch c.width {
	case 1:
		*to = append(*to, byte(v))
	case 2:
		*to = binary.LittleEndian.AppendUint16(*to, uint16(v))
	case 4:
		*to = binary.LittleEndian.AppendUint32(*to, uint32(v))
	default:
		*to = binary.LittleEndian.AppendUint64(*to, v)
	}
}

// widen gives the numbers a larger width.
func (c *Column) widen(width int) {
	was := c.width
	c.width = width
	for at := 0; at < c.rows; at += partRows {
		rows := min(c.rows-at, partRows)
		part := make([]byte, 0, partRows*width)
		if was == 0 {
			for range rows {
				c.append(&part, c.first)
			}
			c.parts = append(c.parts, part)
			continue
		}
		var number [8]byte
		for from := c.parts[at/partRows]; len(from) > 0; from = from[was:] {
			copy(number[:], from[:was])
			c.append(&part, binary.LittleEndian.Uint64(number[:]))
		}
		c.parts[at/partRows] = part
	}
}

// A Cell is a value of a column, to be added again.
type Cell struct {
	number uint64
	none   bool
}

// Last returns the value that was added last.
func (c *Column) Last() Cell {
	if c.kind == none || c.missing != nil && c.missing[c.rows-1] == 1 {
		return Cell{none: true}
	}
	return Cell{number: c.latest}
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
func (c *Column) number(kind kind, v uint64) {
	switch {
	case c.kind == none:
		c.kind, c.first = kind, v
		if c.rows > 0 {
			c.missing = bytes.Repeat([]byte{1}, c.rows)
		}
	case kind == unsigned:
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
		c.number(unsigned, v)
	} else {
		c.number(signed, v)
	}
	if c.wall != nil {
		if wall := c.add.Wall(v); v > 0 && wall > 0 {
			c.wall.number(signed, uint64(wall))
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
	c.number(signed, uint64(v))
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

// Bool adds a truth value.
func (c *Column) Bool(v bool) {
	if c.omitted && !v {
		c.None()
		return
	}
	c.bool(v)
}

func (c *Column) bool(v bool) {
	number := uint64(0)
	if v {
		number = 1
	}
	c.number(truth, number)
}

// UintOrNone adds a number, or none if v is nil.
func (c *Column) UintOrNone(v *uint64) {
	if v == nil {
		c.None()
		return
	}
	c.uint(*v)
}

// Text adds a text.
func (c *Column) Text(v string) {
	if c.omitted && v == "" {
		c.None()
		return
	}
	c.text(text, v)
}

// text adds a text, or the JSON of another value.
func (c *Column) text(kind kind, v string) {
	if c.latest < uint64(len(c.texts)) && c.texts[c.latest] == v {
		c.number(kind, c.latest)
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

// Ints adds a list.
func (c *Column) Ints(v []int) {
	if c.kind != none && !c.omitted && slices.Equal(v, c.ints) {
		c.number(other, c.latest)
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
		c.bool(number.Bool())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		c.uint(number.Uint())
	case reflect.Int, reflect.Int32, reflect.Int64:
		c.int(number.Int())
	default:
		c.text(other, string(Append(nil, v.Interface(), nil)))
	}
}

// listed returns the values that its head has: texts or JSON.
func (c *Column) listed() []string {
	switch {
	case c.texts != nil || c.width > 0:
		return c.texts
	case c.kind == truth:
		return []string{strconv.FormatBool(c.first != 0)}
	case c.kind == unsigned:
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
		e.text = append(append(e.text, `","kind":"`...), c.kind.String()...)
		e.text = append(append(e.text, `","width":`...), strconv.Itoa(c.width)...)
		e.text = append(append(e.text, `,"missing":`...), strconv.FormatBool(c.missing != nil)...)
		if texts := c.listed(); texts != nil {
			e.text = append(e.text, `,"values":[`...)
			for i, one := range texts {
				if e.item(i == 0); c.kind == text {
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
	for _, part := range append([][]byte{c.missing}, c.parts...) {
		e.flush()
		e.text = append(e.text, part...)
	}
}
