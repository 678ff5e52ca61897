package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"ttmem/tracer/recording"
)

// numberedName is the name of a part of a recording that is not the newest.
var numberedName = regexp.MustCompile(`^(.*)\.([1-9][0-9]*)$`)

// older says of a part of a recording which file it goes on from; "" of what is the first.
func (r *recorded) older() string {
	if r.file == nil || r.file.Header().Part == 0 {
		return ""
	}
	path, number := r.name, 0
	if m := numberedName.FindStringSubmatch(path); m != nil {
		if n, err := strconv.Atoi(m[2]); err == nil {
			path, number = m[1], n
		}
	}
	// A number may be free, and what is beside it may be of another recording.
	for n := number + 1; n <= number+2; n++ {
		before := fmt.Sprintf("%s.%d", path, n)
		if isPart(before, r.file.Header()) {
			return fmt.Sprintf("%s goes on from %s, which has what was before", r.name, filepath.Base(before))
		}
	}
	return r.name + " goes on from an older file, which is not beside it"
}

// olderOf is older of the file; "" where nothing is said of that.
func olderOf(path string) string {
	if path == "" || !recording.IsRecording(path) { // a pipe can be read once
		return ""
	}
	r, err := openRecorded(path)
	if err != nil {
		return ""
	}
	defer r.close()
	return r.older()
}

// isPart reports whether a file is the part before the one with the header.
func isPart(path string, of recording.Header) bool {
	if !recording.IsRecording(path) {
		return false
	}
	f, err := recording.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	h := f.Header()
	return h.Recording == of.Recording && h.Part == of.Part-1
}
