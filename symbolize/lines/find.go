package lines

import (
	"os"
	"path"

	"ttmem/symbolize"
)

// debugDir is the folder in which distributions install debug files, GDB's
// debug-file-directory.
const debugDir = "/usr/lib/debug"

// An Opener opens the file at a path, which may come from another user's process. It does not wait
// for that user, as at a file with a lease.
type Opener func(path string) (*os.File, error)

// findDebugFile searches for the debug file of e, as GDB does (Debugging with GDB,
// "Debugging Information in Separate Files"): by build ID, then by the link in the file. The
// build ID must match.
func (open Opener) findDebugFile(e *symbolize.ELF, of string) *symbolize.ELF {
	if d := open.findByBuildID(e.BuildID()); d != nil {
		return d
	}
	name, dir := e.DebugLink(), path.Dir(path.Join("/", of))
	if name == "" || of == "" {
		return nil
	}
	for _, p := range []string{path.Join(dir, name), path.Join(dir, ".debug", name), path.Join(debugDir, dir, name)} {
		if d := open.find(p, e.BuildID()); d != nil {
			return d
		}
	}
	return nil
}

// findByBuildID searches for the debug file with a build ID.
func (open Opener) findByBuildID(buildID string) *symbolize.ELF {
	if len(buildID) <= 2 {
		return nil
	}
	return open.find(path.Join(debugDir, ".build-id", buildID[:2], buildID[2:]+".debug"), buildID)
}

// find opens the file at a path; nil if it is not an ELF file with the build ID.
func (open Opener) find(name, buildID string) *symbolize.ELF {
	f, err := open(name)
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
