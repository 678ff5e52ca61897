package codec

import (
	"reflect"

	"ttmem/tracer/event"
)

// Value writes or reads the value at a pointer: a number, flag, string, stack, or counts by name;
// a struct with exported fields only; or an array, slice or pointer of these. Unknown regions are
// invalid.
func (c *Codec) Value(pointer any) { c.value(reflect.ValueOf(pointer).Elem()) }

func (c *Codec) value(v reflect.Value) {
	switch p := v.Addr().Interface().(type) {
	case *uint64:
		c.Uint(p)
		return
	case *int:
		Number(c, p)
		return
	case *bool:
		c.Bool(p)
		return
	case *string:
		c.Text(p)
		return
	case *event.Region:
		n := int(*p)
		c.Below(&n, int(event.NumRegions))
		*p = event.Region(n)
		return
	case **event.Stack:
		c.Stack(p)
		return
	case *map[string]uint64:
		c.counts(p)
		return
	}
	switch v.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		n := v.Uint()
		if c.Uint(&n); v.OverflowUint(n) {
			c.Fail()
		} else if c.Reads {
			v.SetUint(n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.value(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			c.value(v.Index(i))
		}
	case reflect.Slice:
		c.slice(v)
	case reflect.Pointer:
		there := !v.IsNil()
		if c.Bool(&there); !there {
			return
		}
		if c.Reads {
			v.Set(reflect.New(v.Type().Elem()))
		}
		c.value(v.Elem())
	default:
		c.Fail()
	}
}

// counts writes or reads counts by name. The map may be nil.
func (c *Codec) counts(m *map[string]uint64) {
	known := *m != nil
	if c.Bool(&known); !known {
		return
	}
	if c.Reads {
		*m = make(map[string]uint64)
	}
	Table(c, *m, func(name *string, n *uint64) { c.Text(name); c.Uint(n) })
}

// slice writes or reads a slice, which may be nil. The slice grows while it is read, because the
// length may be damaged.
func (c *Codec) slice(v reflect.Value) {
	known := !v.IsNil()
	if c.Bool(&known); !known {
		return
	}
	n := c.Length(v.Len())
	if c.Reads {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	for i := range n {
		if c.Bad {
			return
		}
		if c.Reads {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		}
		c.value(v.Index(i))
	}
}
