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
	return r.goOnAt(r.file, lastBefore(r.file, r.between(), ns))
}

// Before is the time of the checkpoint at which Last would go on.
func (r *FileReader) Before(ns uint64) (timeNs uint64, found bool) {
	if r.size == 0 {
		return 0, false
	}
	c := lastBefore(r.file, r.between(), ns)
	if c == nil {
		return 0, false
	}
	return c.timeNs, true
}

// between are the checkpoints between the events of the file.
func (r *FileReader) between() []checkpoint {
	if r.checkpoints == nil {
		r.checkpoints = append([]checkpoint{}, findCheckpoints(r.file, r.first, r.size)...)
	}
	return r.checkpoints
}

// lastBefore is the last intact one of the checkpoints between events of a time before ns, or
// nil.
func lastBefore(in storage, list []checkpoint, ns uint64) *checkpoint {
	for i := len(list) - 1; i >= 0; i-- {
		if c := &list[i]; c.timeNs < ns && !c.leads() && c.intact(in) {
			return c
		}
	}
	return nil
}

// goOnAt goes on at a checkpoint, if there is one.
func (r *Reader) goOnAt(in storage, c *checkpoint) (found bool, err error) {
	if c == nil {
		return false, nil
	}
	r.storage, r.resume, r.state, r.begun = in, c.resume, nil, false
	return true, r.jump(c.begin)
}
