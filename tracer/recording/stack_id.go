package recording

import "ttmem/tracer/event"

// StackID is the ID that a stack has when it is read from a recording: the same for
// equal frames, in all files, whatever ID they had when they were written.
func StackID(s *event.Stack) uint64 {
	frames := s.Frames()
	frames = frames[:min(len(frames), maxStackFrames)]
	id := uint64(len(frames))
	for i := range frames {
		id = mixed(id, hashFrame(&frames[i]))
	}
	return id | 1 // never 0
}

// mixed adds the hash of a frame to that of those before.
func mixed(id, frame uint64) uint64 {
	id = (id ^ frame) * 0x9e3779b97f4a7c15
	return id ^ id>>29
}
