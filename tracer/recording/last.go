package recording

import "io"

// A storage is what can be read from anywhere, as a file can.
type storage interface {
	io.ReadSeeker
	io.ReaderAt
}

// Last goes on at the last checkpoint in the file, and reports whether there is one:
// Next gives the events of the checkpoint, and then those that came after it. They make
// the same state as all events of the file. It is to be called before Next; without a
// checkpoint nothing changes.
//
// What is damaged before the checkpoint is not met.
func (r *FileReader) Last() (found bool, err error) {
	if r.size == 0 {
		return false, nil // a pipe
	}
	return r.last(r.file, r.size)
}

// last is Last, of something of that size.
func (r *Reader) last(in storage, size int64) (found bool, err error) {
	list := findCheckpoints(in, r.offset, size)
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; !c.leads && c.intact(in) {
			return true, r.from(in, c)
		}
	}
	return false, nil
}

// Left begins again, and passes over most of what says nothing of buffers that nobody
// freed: Next gives all events that tell of the end of such a buffer, and some others.
// A pipe cannot begin again.
func (r *FileReader) Left() error {
	r.onlyLeft, r.sectionEnd, r.storage = true, 0, r.file
	return r.jump(r.first)
}
