package layout

import (
	"path/filepath"
	"strings"
)

// Release is the release of ttnn that a library belongs to, such as 0.81.1, from
// the directory that pip leaves beside the package; "" where there is none. Root
// is what the path is relative to: "/", or another mount namespace's root.
func Release(root, path string) string {
	for dir := filepath.Dir(path); len(dir) > 1; dir = filepath.Dir(dir) {
		found, _ := filepath.Glob(filepath.Join(escape(root), escape(dir), "ttnn-*.dist-info"))
		for _, info := range found {
			name := strings.TrimSuffix(filepath.Base(info), ".dist-info")
			return strings.TrimPrefix(name, "ttnn-")
		}
		if filepath.Base(dir) == "site-packages" {
			return ""
		}
	}
	return ""
}

// escape takes the meaning of a pattern off a path.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
