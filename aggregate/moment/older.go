package moment

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"ttmem/tracer/recording"
)

// numberedName matches the name of an older part of a recording.
var numberedName = regexp.MustCompile(`^(.*)\.([1-9][0-9]*)$`)

// Older names the file that a part of a recording continues; "" for the first part.
func (f *File) Older() string {
	if f.Header().Part == 0 {
		return ""
	}
	path, number := f.Name, 0
	if m := numberedName.FindStringSubmatch(path); m != nil {
		if n, err := strconv.Atoi(m[2]); err == nil {
			path, number = m[1], n
		}
	}
	// A number may be unused, and the file with that name may belong to another recording.
	for n := number + 1; n <= number+2; n++ {
		before := fmt.Sprintf("%s.%d", path, n)
		if isPart(before, f.Header()) {
			return fmt.Sprintf("%s continues %s, which has the earlier events", f.Name, filepath.Base(before))
		}
	}
	return f.Name + " continues an older file, which is not in its folder"
}

// isPart reports whether a file is the part before the one with this header.
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
