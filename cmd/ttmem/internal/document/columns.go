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
// It leaves out columns of fields that are not selected by their keys.
func WriteColumns(w io.Writer, v any, add Supplement, selected func(key string) bool) error {
	e := &encoder{to: w, add: add, selected: selected}
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
	list     []*Column
	add      Supplement
	selected func(key string) bool
}

// New adds a column for the values of a field; it returns nil if neither the field nor what stands beside it is selected.
func (c *Columns) New(f *Field) *Column {
	if !c.selected(f.Key) && !c.selected(f.Wall) && !c.selected(f.User) {
		return nil
	}
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
	// first and latest are values. They have width bytes each, in little endian, in parts of partRows; width is 0 as
	// long as all are equal to the first.
	first, latest uint64
	width         int
	most          uint64 // the largest number of that width
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
	if c.kind == none {
		c.rows++
	} else {
		if c.missing == nil {
			c.missing = make([]byte, c.rows, c.rows+partRows)
		}
		c.missing = append(c.missing, 1)
		c.push(c.first)
	}
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
	if c.width == 0 || v > c.most {
		c.widen(v)
	}
	c.put(c.rows, v)
	c.rows++
}

// put appends the number of a row.
func (c *Column) put(row int, v uint64) {
	if row%partRows == 0 {
		c.parts = append(c.parts, make([]byte, 0, partRows*c.width))
	}
	part := &c.parts[len(c.parts)-1]
	switch c.width {
	case 1:
		*part = append(*part, byte(v))
	case 2:
		*part = binary.LittleEndian.AppendUint16(*part, uint16(v))
	case 4:
		*part = binary.LittleEndian.AppendUint32(*part, uint32(v))
	default:
		*part = binary.LittleEndian.AppendUint64(*part, v)
	}
}

// widen gives the numbers a width with room for v: as many bytes as an index needs, and 8 for others than truth values.
func (c *Column) widen(v uint64) {
	had, width := c.width > 0, 8
	switch {
	case c.kind == signed || c.kind == unsigned:
	case v <= math.MaxUint8 && c.first <= math.MaxUint8:
		width = 1
	case v <= math.MaxUint16 && c.first <= math.MaxUint16:
		width = 2
	default:
		width = 4
	}
	var numbers []uint64
	if had {
		numbers = c.numbers()
	}
	c.width, c.most = width, math.MaxUint64>>(64-8*width)
	c.parts = nil
	for i := range c.rows {
		v := c.first
		if had {
			v = numbers[i]
		}
		c.put(i, v)
	}
}

// Spread replaces the rows by those with these numbers: the column gets the values of many rows from those of few.
func (c *Column) Spread(rows []uint32) {
	few := *c
	c.rows, c.parts = 0, nil
	if few.missing != nil {
		c.missing = make([]byte, len(rows))
		for i, row := range rows {
			c.missing[i] = few.missing[row]
		}
	}
	if c.width == 0 {
		c.rows = len(rows)
	} else {
		numbers := few.numbers()
		for _, row := range rows {
			c.push(numbers[row])
		}
	}
	for _, beside := range []*Column{c.wall, c.user} {
		if beside != nil {
			beside.Spread(rows)
		}
	}
}

// numbers returns the number of each row of a column that has some.
func (c *Column) numbers() (list []uint64) {
	var number [8]byte
	for _, part := range c.parts {
		for ; len(part) > 0; part = part[c.width:] {
			copy(number[:], part[:c.width])
			list = append(list, binary.LittleEndian.Uint64(number[:]))
		}
	}
	return list
}

// again adds the latest value again.
func (c *Column) again() {
	if c.endsInNone() {
		c.None()
	} else {
		c.number(c.kind, c.latest)
	}
}

func (c *Column) endsInNone() bool {
	return c.kind == none || c.missing != nil && c.missing[c.rows-1] == 1
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

// isSame reports whether a number is that of all rows so far, and nothing stands beside it.
func (c *Column) isSame(v uint64) bool {
	return c.width == 0 && v == c.first && c.kind != none && c.missing == nil && c.wall == nil && c.user == nil
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
	if c.isSame(v) {
		c.rows++
		return
	}
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
	if c.isSame(uint64(v)) {
		c.rows++
		return
	}
	same := !c.endsInNone() && c.latest == uint64(v)
	c.number(signed, uint64(v))
	switch {
	case c.user == nil:
	case same:
		c.user.again()
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

// UintIf adds a number, also 0, or none if the row has none.
func (c *Column) UintIf(v uint64, has bool) {
	if !has {
		c.None()
		return
	}
	c.uint(v)
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
	if c.isSame(c.latest) && c.texts[0] == v {
		c.rows++
		return
	}
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
	list := &Columns{add: e.add, selected: e.selected}
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
