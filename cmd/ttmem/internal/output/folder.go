package output

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"ttmem/tracer/place"
)

// CreateFolder creates a folder that a flag names. It may exist if it is empty.
func CreateFolder(flag, path string) (*File, error) {
	final, err := place.Find(path)
	if err != nil {
		return nil, notCreated(flag, path, "folder", err)
	}
	switch existing, err := final.OpenFolder(); {
	case errors.Is(err, fs.ErrNotExist):
	case errors.Is(err, place.ErrNotOurs):
		return nil, notCreated(flag, path, "folder", err)
	default:
		if err == nil {
			_, err = existing.Readdirnames(1)
			existing.Close()
		}
		if err != io.EOF {
			return nil, fmt.Errorf("%s %s exists and is not an empty folder: name a new one", flag, path)
		}
	}
	f := &File{
		final: final, temporary: final.Beside(fmt.Sprintf(".%s.%d.tmp", final.Name(), os.Getpid())),
		mode: newMode(0o777), isFolder: true,
	}
	if f.W, err = f.temporary.MakeFolder(0o700); err != nil {
		return nil, notCreated(flag, path, "folder", err)
	}
	return f, nil
}

// Create creates a file in the folder, for the users of the folder.
func (f *File) Create(name string) (*os.File, error) {
	f.inside = append(f.inside, name)
	return place.In(f.W, name).Create(name, 0o666)
}
