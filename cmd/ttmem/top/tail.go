package top

import (
	"bytes"
	"strings"
)

const (
	// keptLines is how many lines of output are kept.
	keptLines = 1000
	// keptLine is the maximum length of a line in bytes.
	keptLine = 4096
)

// A tail keeps the last lines that were written to it.
type tail struct {
	whole []string
	last  []byte // a line that has no end yet
}

// Write adds lines. What a carriage return overwrites, such as a progress bar, is dropped.
func (t *tail) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part, rest, whole := bytes.Cut(b, []byte{'\n'})
		if i := bytes.LastIndexByte(bytes.TrimSuffix(part, []byte{'\r'}), '\r'); i >= 0 {
			t.last, part = t.last[:0], part[i+1:]
		}
		t.last = append(t.last, part[:min(len(part), keptLine-len(t.last))]...)
		b = rest
		if !whole {
			break
		}
		if len(t.whole) == 2*keptLines {
			t.whole = append([]string(nil), t.whole[keptLines:]...)
		}
		t.whole = append(t.whole, strings.TrimSuffix(string(t.last), "\r"))
		t.last = t.last[:0]
	}
	return n, nil
}

// lines returns the last lines.
func (t *tail) lines() []string {
	list := t.whole[max(0, len(t.whole)-keptLines):]
	if len(t.last) > 0 {
		list = append(list[:len(list):len(list)], string(t.last))
	}
	return list[:len(list):len(list)]
}
