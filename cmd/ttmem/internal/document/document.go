// Package document writes JSON documents from the Go values that declare them, in one pass.
//
// A document is written as encoding/json writes it, with what the tags of fields and these types add:
//
//   - wall:"KEY", of a time in ns by CLOCK_MONOTONIC: after it comes KEY, the same time by the wall clock
//   - user:"KEY", of a process id: after it comes KEY, the user of the process
//   - schema:"NAME": the description in docs/schema.json of the values of a text
//   - iter.Seq: a list whose items are not all in memory
//   - Object: an object whose fields are not those of a struct
//   - nil slices and maps are empty
package document

import (
	"io"
	"reflect"
	"strconv"

	"ttmem/tracer/event"
)

// A Supplement has what documents have beside times and process ids.
type Supplement interface {
	// Wall returns a time of CLOCK_MONOTONIC by the wall clock, in ns since 1970; 0 if it is not known.
	Wall(ns uint64) int64
	// User returns the user of a process; "" if it is not known.
	User(pid int) string
}

// part is how many bytes of a document are written at once.
const part = 1 << 16

// Write writes a value as one line. Documents may be large: lists are written in parts. Without a supplement
// nothing is added.
func Write(w io.Writer, v any, add Supplement) error {
	e := &encoder{to: w, add: add}
	e.value(v)
	e.text = append(e.text, '\n')
	e.flush()
	return e.err
}

// Append appends a value to b.
func Append(b []byte, v any, add Supplement) []byte {
	e := &encoder{text: b, add: add}
	e.value(v)
	return e.text
}

type encoder struct {
	add  Supplement
	text []byte
	to   io.Writer // nil: the text is kept
	err  error
	// selected, if it is not nil, makes lists of Columnar objects be written as columns: of fields that it selects by
	// their keys. lists are these.
	selected func(key string) bool
	lists    []*Columns
}

func (e *encoder) value(v any) {
	of := reflect.ValueOf(v)
	planOf(of.Type())(e, of)
}

func (e *encoder) flush() {
	if e.err == nil {
		_, e.err = e.to.Write(e.text)
	}
	e.text = e.text[:0]
}

// item begins an item of a list, and reports whether the list goes on.
func (e *encoder) item(first bool) bool {
	if e.to != nil && len(e.text) > part {
		e.flush()
	}
	if !first {
		e.text = append(e.text, ',')
	}
	return e.err == nil
}

// key begins a field of an object.
func (e *encoder) key(key string) {
	if e.text[len(e.text)-1] != '{' {
		e.text = append(e.text, ',')
	}
	e.text = append(append(append(e.text, '"'), key...), `":`...)
}

func (e *encoder) string(s string) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			e.leaf(s)
			return
		}
	}
	e.text = append(append(append(e.text, '"'), s...), '"')
}

// leaf writes a value that has nothing to add.
func (e *encoder) leaf(v any) {
	text, err := event.MarshalJSON(v)
	if err != nil {
		e.err = err
	}
	e.text = append(e.text, text...)
}

func (e *encoder) object(v reflect.Value, fields []plannedField) {
	e.text = append(e.text, '{')
	for i := range fields {
		f := &fields[i]
		if one, ok := f.in(v); ok {
			e.field(&f.Field, one, f.write)
		}
	}
	e.text = append(e.text, '}')
}

// field writes a field with what stands beside it, unless it is left out.
func (e *encoder) field(f *Field, v reflect.Value, write plan) {
	if f.omitted(v) {
		return
	}
	e.key(f.Key)
	write(e, v)
	if e.add != nil && f.Wall != "" {
		if wall := e.add.Wall(v.Uint()); wall > 0 && v.Uint() > 0 {
			e.key(f.Wall)
			e.text = strconv.AppendInt(e.text, wall, 10)
		}
	}
	if e.add != nil && f.User != "" {
		if user := e.add.User(int(reflect.Indirect(v).Int())); user != "" {
			e.key(f.User)
			e.string(user)
		}
	}
}
