package symbolize

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// debugDir is where distributions put debug files, the value of GDB's
// debug-file-directory.
const debugDir = "/usr/lib/debug"

// maxDebugFile is the size in bytes up to which a file's checksum is taken.
const maxDebugFile = 2 << 30

// findDebugFile looks for the debug file of e, as GDB does (Debugging with GDB,
// "Debugging Information in Separate Files"): by build id, then by the link in
// the file; in the file's own root, then on this machine. Nil if there is none.
func findDebugFile(e *ELF, o NamesOptions) *ELF {
	roots := []string{"/"}
	if o.Root != "" && path.Clean(o.Root) != "/" {
		roots = []string{o.Root, "/"}
	}
	name, sum, linked := e.debugLink()
	for _, root := range roots {
		if len(e.buildID) > 2 {
			p := path.Join(debugDir, ".build-id", e.buildID[:2], e.buildID[2:]+".debug")
			if d := openDebugFile(root, p); d != nil {
				if d.buildID == e.buildID {
					return d
				}
				d.Close()
			}
		}
		if !linked || o.Path == "" {
			continue
		}
		dir := path.Dir(path.Join("/", o.Path))
		for _, p := range []string{path.Join(dir, name), path.Join(dir, ".debug", name), path.Join(debugDir, dir, name)} {
			if d := openDebugFile(root, p); d != nil {
				if d.belongsTo(e, sum) {
					return d
				}
				d.Close()
			}
		}
	}
	return nil
}

// debugLink is the name of the debug file that the file says to have, and the
// debug file's checksum.
func (e *ELF) debugLink() (name string, sum uint32, ok bool) {
	s, ok := e.debug[".gnu_debuglink"]
	if !ok {
		return "", 0, false
	}
	b, err := e.read(s.offset, s.size, 4096)
	if err != nil {
		return "", 0, false
	}
	end := bytes.IndexByte(b, 0)
	at := (end + 4) &^ 3
	if end <= 0 || at+4 > len(b) || bytes.IndexByte(b[:end], '/') >= 0 {
		return "", 0, false
	}
	return string(b[:end]), binary.LittleEndian.Uint32(b[at:]), true
}

// belongsTo reports whether d is the debug file of e: by the build ids if both
// have one, otherwise by the checksum that the link gives.
func (d *ELF) belongsTo(e *ELF, sum uint32) bool {
	if d.buildID != "" && e.buildID != "" {
		return d.buildID == e.buildID
	}
	if d.size > maxDebugFile {
		return false
	}
	h := crc32.NewIEEE()
	n, err := io.Copy(h, io.NewSectionReader(d.r, 0, d.size))
	return err == nil && n == d.size && h.Sum32() == sum
}

// openDebugFile opens the file at a path below root; links in it, absolute ones
// too, stay below root. Nil if it is no ELF file.
func openDebugFile(root, name string) *ELF {
	f, err := openBelow(root, name)
	if err != nil {
		return nil
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil
	}
	e, err := New(f, info.Size())
	if err != nil {
		f.Close()
		return nil
	}
	e.closer = f
	return e
}

func openBelow(root, name string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	how := unix.OpenHow{
		// without O_NONBLOCK a named pipe would wait for its other end
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(dir, name, &how)
	for n := 0; n < 8 && (errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR)); n++ { // something was renamed
		fd, err = unix.Openat2(dir, name, &how)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}
