package kernel

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// A record that is being written delays the reader until its deadline, and no longer; the records behind
// it come once it is complete.
func TestRingDoesNotWaitForAWriter(t *testing.T) {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(poll)
	const size = 4096
	var read, written uint64
	r := &Ring{poll: poll, records: make([]byte, 2*size), read: &read, written: &written}
	head := func(at int, value uint32) { binary.NativeEndian.PutUint32(r.records[at:], value) }
	next := func() (string, bool) {
		record, drained, err := r.Next(time.Now().Add(10 * time.Millisecond))
		qt.Assert(t, qt.IsNil(err))
		return string(record), drained
	}
	_, drained := next()
	qt.Check(t, qt.IsTrue(drained))

	head(0, 5|recordBusy)
	copy(r.records[8:], "first")
	head(16, 5|recordDiscarded)
	head(32, 6)
	copy(r.records[40:], "second")
	written = 48
	record, drained := next()
	qt.Check(t, qt.Equals(record, ""))
	qt.Check(t, qt.IsFalse(drained))
	qt.Check(t, qt.Equals(read, 0))

	head(0, 5)
	record, _ = next()
	qt.Check(t, qt.Equals(record, "first"))
	qt.Check(t, qt.Equals(read, 16))
	record, _ = next()
	qt.Check(t, qt.Equals(record, "second"))
	qt.Check(t, qt.Equals(read, written))
	_, drained = next()
	qt.Check(t, qt.IsTrue(drained))
}
