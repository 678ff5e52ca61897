package tracetest

import (
	"errors"
	"io"
	"io/fs"

	"ttmem/aggregate"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// EachEvent calls handle with the events of a recording up to the last one that was written, each
// after those that it implies. There are none before the file exists.
func EachEvent(path string, handle func(*event.Event)) error {
	r, err := recording.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	} else if err != nil {
		return err
	}
	defer r.Close()
	for take := aggregate.New().Completed(handle); ; {
		var e event.Event
		switch err := r.Next(&e); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		case err != nil:
			return err
		}
		take(&e)
	}
}
