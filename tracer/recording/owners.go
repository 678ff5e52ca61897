package recording

import (
	"errors"
	"io"

	"ttmem/tracer/event"
)

// An ownerBlock is a block of Owners. None of them is later than latest.
type ownerBlock struct {
	at, size int64
	latest   uint64
}

// Owners calls handle with the Owners of the file that are not before the time ns. It reads no other
// events, and may be called between two calls of Next. Owners after damage are missing.
func (r *FileReader) Owners(ns uint64, handle func(*event.Event)) error {
	r.index()
	return readOwners(r.file, r.name, r.owners, ns, handle)
}

// readOwners is Owners of some blocks.
func readOwners(from io.ReaderAt, name string, list []ownerBlock, ns uint64, handle func(*event.Event)) error {
	blocks, err := newBlockReader(nil, name)
	if err != nil {
		return err
	}
	defer blocks.zstd.Close()
	for _, b := range list {
		if b.latest < ns {
			continue
		}
		blocks.in.Reset(io.NewSectionReader(from, b.at, b.size))
		blocks.offset, blocks.err = b.at, nil
		var e event.Event
		err := blocks.Next(&e)
		for ; err == nil; err = blocks.Next(&e) {
			if e.Kind == event.Owner && e.TimeNs >= ns {
				handle(&e)
			}
		}
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}
