package top

import (
	"bytes"
	"slices"
	"strings"
)

const (
	// keptLines is the number of lines of output to keep.
	keptLines = 1000
	// keptLine is the maximum length of a line in bytes.
	keptLine = 4096
)

// A tail keeps the last lines that were written to it.
type tail struct {
	list []string
	open bool // the last line has no end yet
}

// Write adds lines. It drops text that a carriage return overwrites, such as a progress bar.
func (t *tail) Write(b []byte) (int, error) {
	for part := range bytes.Lines(b) {
		if !t.open {
			t.list = append(t.list, "")
		}
		last := &t.list[len(t.list)-1]
		*last += string(part)
		if i := strings.LastIndexByte(strings.TrimRight(*last, "\r\n"), '\r'); i >= 0 {
			*last = (*last)[i+1:]
		}
		*last = (*last)[:min(len(*last), keptLine)]
		t.open = part[len(part)-1] != '\n'
	}
	if n := len(t.list); n > 2*keptLines {
		t.list = slices.Clone(t.list[n-keptLines:])
	}
	return len(b), nil
}

// lines returns the last lines.
func (t *tail) lines() []string {
	list := slices.Clone(t.list[max(0, len(t.list)-keptLines):])
	for i := range list {
		list[i] = strings.TrimRight(list[i], "\r\n")
	}
	return list
}
