package libraries

import (
	"errors"
	"os"
	"path/filepath"

	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// Known returns the library in a mapped file, nil if the file is none; false if it was not
// inspected.
func (s *Set) Known(m *host.Mapping) (l *Library, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, known = s.byFile[m.File]
	if l != nil && l.Probes == nil {
		return nil, false
	}
	// perhaps another file with the inode number of a file that was not a library
	return l, known && (l != nil || m.File.Generation != 0 || !host.NamedLikeLibrary(m.Path))
}

// MayBeLibrary reports whether a file is a tt-metal library, also a stripped one, or cannot be read.
func MayBeLibrary(file *os.File) bool {
	info, err := file.Stat()
	if err != nil {
		return true
	}
	elf, err := symbolize.New(file, info.Size())
	if err != nil {
		return !errors.Is(err, symbolize.ErrNotELF)
	}
	defer elf.Close()
	return !errors.Is(layout.Recognize(elf), layout.ErrNoLibrary)
}

// HasUsualName reports whether a file has the name that the library has in most releases.
func HasUsualName(path string) bool { return filepath.Base(path) == "libtt_metal.so" }
