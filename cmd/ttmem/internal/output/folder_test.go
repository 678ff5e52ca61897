package output

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestAFolderIsCompleteOrAbsent(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report")
	for _, existing := range []bool{false, true} { // an empty folder
		if existing {
			qt.Assert(t, qt.IsNil(os.Mkdir(path, 0o755)))
		}
		f, err := CreateFolder("-o", path)
		qt.Assert(t, qt.IsNil(err))
		inside, err := f.Create("db")
		qt.Assert(t, qt.IsNil(err))
		inside.Close()
		_, err = os.Stat(filepath.Join(path, "db"))
		qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
		qt.Assert(t, qt.IsNil(f.Finish(nil)))
		f.Discard()
		qt.Check(t, qt.DeepEquals(names(t, path), []string{"db"}))
		qt.Assert(t, qt.IsNil(os.RemoveAll(path)))

		f, err = CreateFolder("-o", path)
		qt.Assert(t, qt.IsNil(err))
		_, err = f.Create("db")
		qt.Assert(t, qt.IsNil(err))
		f.Discard()
		qt.Check(t, qt.HasLen(names(t, dir), 0))
	}
}

func TestAFolderReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	full, file := filepath.Join(dir, "full"), filepath.Join(dir, "file")
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(full, "sub"), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(file, nil, 0o644)))
	for _, path := range []string{full, full + "/", file} {
		_, err := CreateFolder("-o", path)
		qt.Check(t, qt.ErrorMatches(err, "-o .* exists and is not an empty folder: name a new one"))
	}
	_, err := CreateFolder("-o", filepath.Join(dir, "none", "x"))
	qt.Check(t, qt.ErrorMatches(err, "-o .*: no such file or directory; name a folder that can be created"))
	qt.Check(t, qt.DeepEquals(names(t, dir), []string{"file", "full"}))
}
