package recording

import "io"

// A storage is what can be read from anywhere, as a file can.
type storage interface {
	io.ReadSeeker
	io.ReaderAt
}

// Last goes on at the last checkpoint in the file of a time before ns, and reports whether
// there is one: Next gives the checkpoint, and then the events that came after it. They make
// the same state as all events of the file. It is to be called before Next; without a
// checkpoint nothing changes. One with which the file begins is not looked for.
//
// What is damaged before the checkpoint is not read.
func (r *FileReader) Last(ns uint64) (found bool, err error) {
	if r.size == 0 {
		return false, nil // a pipe
	}
	return r.last(r.file, r.size, ns)
}

// last is Last, of something of that size.
func (r *Reader) last(in storage, size int64, ns uint64) (found bool, err error) {
	list := findCheckpoints(in, r.offset, size)
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; c.timeNs < ns && !c.leads() && c.intact(in) {
			r.storage, r.resume, r.state, r.begun = in, c.resume, nil, false
			return true, r.jump(c.begin)
		}
	}
	return false, nil
}
