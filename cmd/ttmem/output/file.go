package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Resolved is the path behind links, whether or not the file is there; "-" stays.
func Resolved(path string) string {
	if path == "-" {
		return path
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	for range 40 { // symbolic links may point to what is not there yet
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// A File gets its name when it is complete. Until then it has a temporary name in the same
// folder, and an older file of its name stays.
type File struct {
	W *os.File
	// final is the name that it gets; "" for standard output and pipes
	final string
	done  bool
}

// Create creates a file that a flag names; "-" is standard output.
func Create(flag, path string) (*File, error) {
	if path == "-" {
		return &File{W: os.Stdout}, nil
	}
	fail := func(err error) (*File, error) {
		return nil, fmt.Errorf("%s %s: %w; name a file that can be written", flag, path, Pathless(err))
	}
	if err := checkLinks(path); err != nil {
		return fail(err)
	}
	final := path
	info, err := os.Stat(final)
	if err == nil {
		// opening it shows whether it may be written
		f, err := os.OpenFile(final, os.O_WRONLY, 0)
		if err != nil {
			return fail(err)
		}
		if !info.Mode().IsRegular() {
			return &File{W: f}, nil
		}
		f.Close()
	}
	// a symbolic link stays: its target is replaced
	final = Resolved(final)
	f, err := createBeside(final)
	if err != nil {
		return fail(err)
	}
	if info != nil {
		// the same users may read it as before
		_ = f.Chmod(info.Mode().Perm())
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			_ = f.Chown(int(stat.Uid), int(stat.Gid))
		}
	}
	return &File{W: f, final: final}, nil
}

// Finish gives the file its name, unless writing it ended with the error err.
func (f *File) Finish(err error) error {
	if f.W != os.Stdout {
		err = errors.Join(err, f.W.Close())
	}
	if err == nil && f.final != "" {
		err = os.Rename(f.W.Name(), f.final)
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
	f.W.Close()
	if f.final != "" {
		os.Remove(f.W.Name())
	}
}

// createBeside creates a file with a temporary name in the folder of another.
func createBeside(path string) (f *os.File, err error) {
	dir, name := filepath.Split(path)
	for i := range 100 {
		temporary := filepath.Join(dir, fmt.Sprintf(".%s.%d.%d.tmp", name, os.Getpid(), i))
		f, err = os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if !errors.Is(err, os.ErrExist) {
			break
		}
	}
	return f, err
}

// Pathless is an error without the name of the file, which its message has already.
func Pathless(err error) error {
	var perr *os.PathError
	if errors.As(err, &perr) {
		return perr.Err
	}
	return err
}

// FirstError is the first of joined errors, without names of files.
func FirstError(err error) error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		err = joined.Unwrap()[0]
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return Pathless(err)
}

// KeepPrivate makes new files readable by their owner only: they have command lines and paths
// of other users.
func KeepPrivate() { unix.Umask(0o077) }
