package output

import (
	"fmt"
	"io"
	"os"

	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// CreateFolder creates a folder that a flag names. It may exist if it is empty.
func CreateFolder(flag, path string) (*File, error) {
	fail := func(err error) (*File, error) {
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
			return nil, fmt.Errorf("%s %s exists and is not an empty folder: name a new one", flag, path)
		}
	}
	f := &File{final: final, temporary: final.Beside(fmt.Sprintf(".%s.%d.tmp", final.Name(), os.Getpid()))}
	if err := f.temporary.MakeFolder(0o777); err != nil {
		return fail(err)
	}
	f.Folder = f.temporary.String()
	return f, nil
}
