package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// Names reports whether a path, or - for standard output, leads to that file, under any name.
func Names(path string, file os.FileInfo) bool {
	info, err := os.Stat(path)
	if path == "-" {
		info, err = os.Stdout.Stat()
	}
	return err == nil && os.SameFile(info, file)
}

// A File, or a folder of files, gets its name when it is complete. Until then it has a temporary
// name in the same folder, where only its owner can read it, and an older file of its name stays.
type File struct {
	W *os.File // or the open folder
	// temporary is its place until it moves to final; nil for standard output and pipes
	temporary, final *place.Place
	mode             fs.FileMode // when it is finished, unless Private is true
	isFolder         bool
	inside           []string // names of the files in the folder
	done             bool
}

// Create creates a file that a flag names; "-" is standard output.
func Create(flag, path string) (*File, error) {
	if path == "-" {
		return &File{W: os.Stdout}, nil
	}
	final, err := place.Find(path)
	if err != nil {
		return nil, notCreated(flag, path, "file", err)
	}
	fail := func(err error) (*File, error) { return nil, notCreated(flag, final.String(), "file", err) }
	f := &File{final: final, mode: newMode(0o666)}
	info, err := final.Stat()
	if err == nil {
		// opening the file shows whether it is writable
		existing, err := final.OpenExisting(final.String())
		if err != nil {
			return fail(err)
		}
		if !info.Mode().IsRegular() {
			return &File{W: existing}, nil
		}
		existing.Close()
		f.mode &= info.Mode() // at most the same users may read it
	}
	for i := range 100 {
		f.temporary = final.Beside(fmt.Sprintf(".%s.%d.%d.tmp", final.Name(), os.Getpid(), i))
		if f.W, err = f.temporary.Create(final.String(), 0o600); !errors.Is(err, fs.ErrExist) {
			break
		}
	}
	if err != nil {
		return fail(err)
	}
	return f, nil
}

func notCreated(flag, path, what string, err error) error {
	can := map[string]string{"file": "written", "folder": "created"}[what]
	return fmt.Errorf("%s %s: %w; name a %s that can be %s", flag, path, host.WithoutPath(err), what, can)
}

// newMode returns the mode of a new file under the umask.
func newMode(mode fs.FileMode) fs.FileMode {
	umask := unix.Umask(0o077)
	unix.Umask(umask)
	return mode &^ fs.FileMode(umask)
}

// Private is true once this process has opened a recording that not every user may read: the files that
// it finishes are then readable only for their owner.
var Private atomic.Bool

// Until returns a Writer to the file that fails once the context is done, so that no half file stays.
func (f *File) Until(ctx context.Context) io.Writer { return &untilDone{ctx, f.W} }

type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u *untilDone) Write(b []byte) (int, error) {
	if u.ctx.Err() != nil {
		return 0, term.ErrInterrupted
	}
	return u.w.Write(b)
}

// Finish gives the file its name, unless writing it ended with the error err.
func (f *File) Finish(err error) error {
	if f.temporary != nil {
		if Private.Load() {
			f.mode &= 0o700
		}
		err = errors.Join(err, f.W.Chmod(f.mode))
	}
	if f.W != os.Stdout && !f.isFolder {
		err = errors.Join(err, f.W.Close())
	}
	if err == nil && f.temporary != nil {
		err = f.temporary.Rename(f.final)
	}
	if err != nil {
		f.Discard()
		return FirstError(err)
	}
	if f.done = true; f.isFolder {
		f.W.Close()
	}
	return nil
}

// Discard removes a file that was not finished.
func (f *File) Discard() {
	if f.done || f.W == os.Stdout {
		return
	}
	f.done = true
	for _, name := range f.inside {
		_ = place.In(f.W, name).Remove()
	}
	switch {
	case f.temporary == nil:
	case f.isFolder:
		_ = f.temporary.RemoveFolder()
	default:
		_ = f.temporary.Remove()
	}
	f.W.Close()
}

// FirstError returns the first of joined errors, without names of files.
func FirstError(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		err = joined.Unwrap()[0]
	}
	return host.WithoutPath(err)
}
