package rig

import (
	"archive/zip"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

// wheel makes a wheel of files whose content is their name.
func wheel(t *testing.T, path string, files ...string) string {
	t.Helper()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	f, err := os.Create(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	z := zip.NewWriter(f)
	for _, name := range files {
		w, err := z.Create(name)
		qt.Assert(t, qt.IsNil(err))
		_, err = w.Write([]byte(name))
		qt.Assert(t, qt.IsNil(err))
	}
	qt.Assert(t, qt.IsNil(z.Close()))
	return path
}

// The cache holds the wheels, so nothing is downloaded.
func TestLibraryFromWheel(t *testing.T) {
	for name, tc := range map[string]struct {
		files []string
		want  string
	}{
		"libtt_metal.so": {[]string{"ttnn/build/lib/_ttnncpp.so", "ttnn/build/lib/libtt_metal.so"}, "libtt_metal.so"},
		"an old release": {[]string{"ttnn/build/lib/_ttnncpp.so", "ttnn/_ttnn.so"}, "_ttnncpp.so"},
	} {
		t.Run(name, func(t *testing.T) {
			cache := t.TempDir()
			t.Setenv("TTMEM_CACHE", cache)
			w := wheel(t, filepath.Join(cache, "wheels", "ttnn-0.60.1-cp310-cp310-linux_x86_64.whl"), tc.files...)
			for range 2 { // the second time without the wheel
				lib, err := Library(t.Context(), "0.60.1")
				qt.Assert(t, qt.IsNil(err))
				b, err := os.ReadFile(lib)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(string(b), "ttnn/build/lib/"+tc.want))
				os.Remove(w)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		cache := t.TempDir()
		t.Setenv("TTMEM_CACHE", cache)
		wheel(t, filepath.Join(cache, "wheels", "ttnn-0.60.1-cp310-x.whl"), "ttnn/__init__.py")
		_, err := Library(t.Context(), "0.60.1")
		qt.Check(t, qt.ErrorMatches(err, "unpacking ttnn-0.60.1-cp310-x.whl: no libtt_metal.so in it"))
	})
}
