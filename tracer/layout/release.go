package layout

import (
	"os"
	"path/filepath"
	"strings"
)

// Release returns the release of ttnn, such as 0.81.1, that contains the library at a path; "" if
// there is none. pip leaves its number in the name of the directory ttnn-X.Y.Z.dist-info beside
// the package. open opens a directory.
func Release(open func(path string) (*os.File, error), path string) string {
	// the library is a few directories deep in the package
	dir := filepath.Dir(filepath.Clean("/" + path))
	for range maxDepth {
		if release := releaseIn(open, dir); release != "" {
			return release
		}
		if dir == "/" {
			break
		}
		dir = filepath.Dir(dir)
	}
	return ""
}

// maxDepth bounds the directories above the library that are searched.
const maxDepth = 6

// maxEntries bounds the entries of a directory that are read.
const maxEntries = 1 << 16

func releaseIn(open func(path string) (*os.File, error), dir string) string {
	if base := filepath.Base(dir); base != "site-packages" && base != "dist-packages" {
		// a directory without packages may be huge, or slow
		f, err := open(filepath.Join(dir, "ttnn"))
		if err != nil {
			return ""
		}
		f.Close()
	}
	f, err := open(dir)
	if err != nil {
		return ""
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxEntries)
	for _, name := range names {
		name, ok := strings.CutPrefix(name, "ttnn-")
		if name, is := strings.CutSuffix(name, ".dist-info"); ok && is {
			return name
		}
	}
	return ""
}
