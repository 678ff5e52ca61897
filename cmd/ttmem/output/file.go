package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/term"
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
// name in the same folder, and an older file of its name stays.
type File struct {
	W *os.File // nil for a folder
	// Folder is the path of the temporary folder; "" for a file.
	Folder string
	// temporary is its place until it moves to final; nil for standard output and pipes
	temporary, final *place.Place
	done             bool
}

// Create creates a file that a flag names; "-" is standard output.
func Create(flag, path string) (*File, error) {
	if path == "-" {
		return &File{W: os.Stdout}, nil
	}
	fail := func(err error) (*File, error) {
		return nil, fmt.Errorf("%s %s: %w; name a file that can be written", flag, path, host.WithoutPath(err))
	}
	final, err := place.Find(path)
	if err != nil {
		return fail(err)
	}
	info, err := final.Stat()
	if err == nil {
		// opening the file shows whether it is writable
		f, err := final.Open(os.O_WRONLY, 0)
		if err != nil {
			return fail(err)
		}
		if !info.Mode().IsRegular() {
			return &File{W: f}, nil
		}
		f.Close()
	}
	f := &File{final: final}
	if err := f.createBeside(); err != nil {
		return fail(err)
	}
	if info != nil {
		// the same users may read it as the older file
		_ = f.W.Chmod(info.Mode().Perm())
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = f.W.Chown(int(stat.Uid), int(stat.Gid))
		}
	}
	return f, nil
}

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
	if f.W != nil && f.W != os.Stdout {
		err = errors.Join(err, f.W.Close())
	}
	if err == nil && f.temporary != nil {
		err = f.temporary.Rename(f.final)
	}
	if err != nil {
		f.Discard()
		return FirstError(err)
	}
	f.done = true
	return nil
}

// Discard removes a file that was not finished.
func (f *File) Discard() {
	if f.done || f.W == os.Stdout {
		return
	}
	f.done = true
	switch {
	case f.Folder != "":
		_ = os.RemoveAll(f.Folder)
	case f.temporary != nil:
		_ = f.temporary.Remove()
	}
	f.W.Close()
}

// createBeside creates the file with a temporary name in the folder of the final one.
func (f *File) createBeside() (err error) {
	for i := range 100 {
		f.temporary = f.final.Beside(fmt.Sprintf(".%s.%d.%d.tmp", f.final.Name(), os.Getpid(), i))
		f.W, err = f.temporary.Open(os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return err
}

// FirstError returns the first of joined errors, without names of files.
func FirstError(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		err = joined.Unwrap()[0]
	}
	return host.WithoutPath(err)
}

// KeepPrivate makes new files readable only for their owner: they have command lines and paths of
// other users.
func KeepPrivate() { unix.Umask(0o077) }
