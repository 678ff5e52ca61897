package lines

import (
	"os"
	"path"
	"strconv"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
)

// debugDir is the folder in which distributions install debug files, GDB's
// debug-file-directory.
const debugDir = "/usr/lib/debug"

// findDebugFile searches for the debug file of e, as GDB does (Debugging with GDB,
// "Debugging Information in Separate Files"): by build ID, then by the link in the file;
// below root, then on this machine. The build ID must match.
func findDebugFile(e *symbolize.ELF, root, of string) *symbolize.ELF {
	roots := []string{"/"}
	if root != "" {
		roots = []string{root, "/"}
	}
	name, dir := e.DebugLink(), path.Dir(path.Join("/", of))
	for _, root := range roots {
		if d := findByBuildID(root, e.BuildID()); d != nil {
			return d
		}
		if name == "" || of == "" {
			continue
		}
		for _, p := range []string{path.Join(dir, name), path.Join(dir, ".debug", name), path.Join(debugDir, dir, name)} {
			if d := open(root, p, e.BuildID()); d != nil {
				return d
			}
		}
	}
	return nil
}

// findByBuildID searches for the debug file with a build ID.
func findByBuildID(root, buildID string) *symbolize.ELF {
	if len(buildID) <= 2 {
		return nil
	}
	return open(root, path.Join(debugDir, ".build-id", buildID[:2], buildID[2:]+".debug"), buildID)
}

// open opens the file at a path below root; nil if it is not an ELF file with the build ID.
func open(root, name, buildID string) *symbolize.ELF {
	f, err := openBelow(root, name)
	if err != nil {
		return nil
	}
	e, err := symbolize.OpenFile(f)
	if err != nil {
		return nil
	}
	if buildID == "" || e.BuildID() != buildID {
		e.Close()
		return nil
	}
	return e
}

// openBelow opens the regular file at a path below root; symbolic links, even absolute
// ones, stay below root. The path may come from another user's process: only regular files
// are opened, because opening a device may have effects.
func openBelow(root, name string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	place, err := unix.Openat2(dir, name, &how)
	if err != nil {
		return nil, err
	}
	defer unix.Close(place)
	var info unix.Stat_t
	if err := unix.Fstat(place, &info); err != nil {
		return nil, err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, os.ErrInvalid
	}
	return os.Open("/proc/self/fd/" + strconv.Itoa(place))
}
