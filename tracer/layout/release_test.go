package layout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestRelease(t *testing.T) {
	root := t.TempDir()
	lib := "/venv/lib/python3.12/site-packages/ttnn/build/lib/libtt_metal.so"
	make := func(path string) {
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(root, path), 0o755)))
	}
	make(filepath.Dir(lib))
	open := func(path string) (*os.File, error) { return os.Open(filepath.Join(root, path)) }
	qt.Check(t, qt.Equals(Release(open, lib), ""))
	make("/venv/lib/python3.12/site-packages/ttnn_visualizer-0.1.dist-info")
	make("/venv/lib/python3.12/site-packages/ttnn-0.81.1.dist-info")
	qt.Check(t, qt.Equals(Release(open, lib), "0.81.1"))
	qt.Check(t, qt.Equals(Release(os.Open, filepath.Join(root, lib)), "0.81.1"))
	qt.Check(t, qt.Equals(Release(open, "/usr/lib/libc.so.6"), ""))
	qt.Check(t, qt.Equals(Release(open, ""), ""))
	// _ttnn.so of older wheels lies in the package itself
	qt.Check(t, qt.Equals(Release(open, "/venv/lib/python3.12/site-packages/ttnn/_ttnncpp.so"), "0.81.1"))
}
