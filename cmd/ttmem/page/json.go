package page

import (
	"fmt"
	"io"
	"iter"

	"ttmem/tracer/event"
)

// Rectangles are cores as documents have them: x0, y0, x1, y1.
func Rectangles(cores []event.CoreRange) [][4]uint16 {
	list := make([][4]uint16, 0, len(cores))
	for _, c := range cores {
		list = append(list, [4]uint16{c.X0, c.Y0, c.X1, c.Y1})
	}
	return list
}

// A JSONList is a list at the end of a document. It may be long: its items are not all in memory.
type JSONList struct {
	Key   string
	Items iter.Seq[any]
}

// JSON writes a document as one line, with lists that its type does not have. Each part that it writes
// has whole keys and numbers.
func JSON(w io.Writer, doc any, lists ...JSONList) error {
	text, err := event.MarshalJSON(doc)
	if err != nil {
		return err
	}
	for _, list := range lists {
		text = fmt.Appendf(text[:len(text)-1], ",%q:[", list.Key) // in place of the closing brace
		comma := ""
		for item := range list.Items {
			one, err := event.MarshalJSON(item)
			if err != nil {
				return err
			}
			text, comma = append(append(text, comma...), one...), ","
			if len(text) > jsonPart {
				if _, err := w.Write(text); err != nil {
					return err
				}
				text = text[:0]
			}
		}
		text = append(text, "]}"...)
	}
	_, err = w.Write(append(text, '\n'))
	return err
}

// jsonPart is how many bytes of a long list are written at once.
const jsonPart = 1 << 16
