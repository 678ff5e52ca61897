package output

import (
	"fmt"
	"io"
	"os"

	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// A Folder gets its name when it is complete. Until then it has a temporary name beside it.
type Folder struct {
	// Path is the path of the temporary folder.
	Path             string
	temporary, final *place.Place
	done             bool
}

// CreateFolder creates a folder that a flag names. It may exist if it is empty.
func CreateFolder(flag, path string) (*Folder, error) {
	fail := func(err error) (*Folder, error) {
		return nil, fmt.Errorf("%s %s: %w; name a folder that can be created", flag, path, host.WithoutPath(err))
	}
	final, err := place.Find(path)
	if err != nil {
		return fail(err)
	}
	if f, err := os.Open(final.String()); err == nil {
		_, err := f.Readdirnames(1)
		f.Close()
		if err != io.EOF {
			return nil, fmt.Errorf("%s %s exists and is no empty folder: name a new one", flag, path)
		}
	}
	f := &Folder{final: final, temporary: final.Beside(fmt.Sprintf(".%s.%d.tmp", final.Name(), os.Getpid()))}
	if err := f.temporary.MakeFolder(0o777); err != nil {
		return fail(err)
	}
	f.Path = f.temporary.String()
	return f, nil
}

// Finish gives the folder its name, unless writing it ended with the error err.
func (f *Folder) Finish(err error) error {
	if err == nil {
		err = f.temporary.Rename(f.final)
	}
	if err != nil {
		f.Discard()
		return FirstError(err)
	}
	f.done = true
	return nil
}

// Discard removes a folder that was not finished.
func (f *Folder) Discard() {
	if !f.done {
		f.done = true
		_ = os.RemoveAll(f.Path)
	}
}
