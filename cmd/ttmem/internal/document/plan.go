package document

import (
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A Field is a field of an object.
type Field struct {
	reflect.StructField
	// Of is the struct that declares it, which may be embedded. Its Index is from the outer one.
	Of reflect.Type
	// Key is its name in the document.
	Key string
	// Wall and User are the keys of what follows it; "" if nothing does.
	Wall, User string
	// OmitEmpty and OmitZero are true if it is left out if it is empty or zero.
	OmitEmpty, OmitZero bool
	// Optional is true if it may be left out.
	Optional bool
	// About describes it, if Of does not.
	About string
}

// A Declarer is an Object whose zero value declares its fields.
type Declarer interface {
	Object
	Declared() []Field
}

// Fields returns the fields of a struct, in the order of documents.
func Fields(t reflect.Type) (fields []Field) {
	if d, ok := reflect.Zero(t).Interface().(Declarer); ok {
		return d.Declared()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		key, options, _ := strings.Cut(tag, ",")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		if f.Anonymous && key == "" {
			inner, isPointer := f.Type, f.Type.Kind() == reflect.Pointer
			if isPointer {
				inner = inner.Elem()
			}
			for _, one := range Fields(inner) {
				one.Index = append([]int{i}, one.Index...)
				one.Optional = one.Optional || isPointer
				fields = append(fields, one)
			}
			continue
		}
		if key == "" {
			key = f.Name
		}
		has := strings.Split(options, ",")
		one := Field{StructField: f, Of: t, Key: key, Wall: f.Tag.Get("wall"), User: f.Tag.Get("user"), OmitEmpty: slices.Contains(has, "omitempty"), OmitZero: slices.Contains(has, "omitzero")}
		one.Optional = one.OmitEmpty || one.OmitZero
		fields = append(fields, one)
	}
	return fields
}

// in returns the field's value; false if an embedded pointer on the way is nil.
func (f *Field) in(v reflect.Value) (reflect.Value, bool) {
	for depth, i := range f.Index {
		if depth > 0 && v.Kind() == reflect.Pointer {
			if v.IsNil() {
				return v, false
			}
			v = v.Elem()
		}
		v = v.Field(i)
	}
	return v, true
}

// omitted reports whether the field is left out for its value.
func (f *Field) omitted(v reflect.Value) bool {
	switch kind := v.Kind(); {
	case f.OmitEmpty && (kind == reflect.Slice || kind == reflect.Map):
		return v.Len() == 0
	case f.OmitEmpty && (kind == reflect.Struct || kind == reflect.Array):
		return false
	}
	return (f.OmitEmpty || f.OmitZero) && v.IsZero()
}

// A plan writes the values of a type.
type plan func(*encoder, reflect.Value)

type plannedField struct {
	Field
	write plan
}

var plans sync.Map // of plan, by reflect.Type

func planOf(t reflect.Type) plan {
	if known, ok := plans.Load(t); ok {
		return known.(plan)
	}
	var p plan
	var made sync.WaitGroup
	made.Add(1)
	known, other := plans.LoadOrStore(t, plan(func(e *encoder, v reflect.Value) { // for a type that contains itself
		made.Wait()
		p(e, v)
	}))
	if other {
		return known.(plan)
	}
	p = newPlan(t)
	made.Done()
	plans.Store(t, p)
	return p
}

// An appender has a faster way to write itself than json.Marshaler.
type appender interface {
	json.Marshaler
	AppendJSON(b []byte) []byte
}

// An Object is written with the fields that it yields, and their values.
type Object interface {
	Fields(yield func(*Field, any) bool)
}

func newPlan(t reflect.Type) plan {
	switch {
	case t.Implements(reflect.TypeFor[Object]()):
		return func(e *encoder, v reflect.Value) {
			e.text = append(e.text, '{')
			for f, value := range v.Interface().(Object).Fields {
				one := reflect.ValueOf(value)
				e.field(f, one, planOf(one.Type()))
			}
			e.text = append(e.text, '}')
		}
	case t.Implements(reflect.TypeFor[appender]()):
		return func(e *encoder, v reflect.Value) {
			if v.IsNil() {
				e.text = append(e.text, "null"...)
			} else {
				e.text = v.Interface().(appender).AppendJSON(e.text)
			}
		}
	case t.Implements(reflect.TypeFor[json.Marshaler]()):
		return func(e *encoder, v reflect.Value) { e.leaf(v.Interface()) }
	}
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return func(e *encoder, v reflect.Value) { e.text = strconv.AppendInt(e.text, v.Int(), 10) }
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return func(e *encoder, v reflect.Value) { e.text = strconv.AppendUint(e.text, v.Uint(), 10) }
	case reflect.String:
		return func(e *encoder, v reflect.Value) { e.string(v.String()) }
	case reflect.Pointer:
		elem := planOf(t.Elem())
		return func(e *encoder, v reflect.Value) {
			if v.IsNil() {
				e.text = append(e.text, "null"...)
			} else {
				elem(e, v.Elem())
			}
		}
	case reflect.Slice, reflect.Array:
		elem := planOf(t.Elem())
		return func(e *encoder, v reflect.Value) {
			e.text = append(e.text, '[')
			for i := 0; i < v.Len() && e.item(i == 0); i++ {
				elem(e, v.Index(i))
			}
			e.text = append(e.text, ']')
		}
	case reflect.Func: // an iter.Seq
		elem := planOf(t.In(0).In(0))
		columnar := t.Implements(reflect.TypeFor[Columnar]())
		return func(e *encoder, v reflect.Value) {
			if columnar && e.selected != nil {
				e.columns(v.Interface().(Columnar))
				return
			}
			e.text = append(e.text, '[')
			if first := true; !v.IsNil() {
				for one := range v.Seq() {
					if !e.item(first) {
						break
					}
					elem(e, one)
					first = false
				}
			}
			e.text = append(e.text, ']')
		}
	case reflect.Struct:
		var fields []plannedField
		for _, f := range Fields(t) {
			fields = append(fields, plannedField{f, planOf(f.Type)})
		}
		return func(e *encoder, v reflect.Value) { e.object(v, fields) }
	case reflect.Map:
		return func(e *encoder, v reflect.Value) {
			if v.IsNil() {
				e.text = append(e.text, "{}"...)
			} else {
				e.leaf(v.Interface())
			}
		}
	}
	return func(e *encoder, v reflect.Value) { e.leaf(v.Interface()) }
}
