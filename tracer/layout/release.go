package layout

import (
	"os"
	"path/filepath"
	"strings"
)

// Release is the release of ttnn, such as 0.81.1, that contains the library at a path: it
// is read from the name of the directory ttnn-X.Y.Z.dist-info that pip leaves beside the
// package. "" if there is none. Root is the root of path: "" or "/", or that of another
// mount namespace, as /proc/PID/root.
func Release(root, path string) string {
	// the library lies a few directories into the package
	dir := filepath.Dir(filepath.Clean("/" + path))
	for range maxDepth {
		if release := releaseIn(filepath.Join("/", root, dir)); release != "" {
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

func releaseIn(dir string) string {
	if base := filepath.Base(dir); base != "site-packages" && base != "dist-packages" {
		// a directory without packages may be huge, or slow
		if _, err := os.Stat(filepath.Join(dir, "ttnn")); err != nil {
			return ""
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), "ttnn-")
		if name, is := strings.CutSuffix(name, ".dist-info"); ok && is {
			return name
		}
	}
	return ""
}
