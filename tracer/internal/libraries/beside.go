package libraries

import (
	"os"
	"strings"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// maxBeside bounds the files of a user that have probes beside the libraries.
const maxBeside = 64

// KnownBeside notes that a process maps a file, and reports whether the file was inspected.
func (s *Set) KnownBeside(id host.FileID, pid int) bool { return s.beside.Known(id, s.memberID(pid)) }

// OpenBeside places probes in a file that a process with a library maps, if the file makes or catches
// exceptions of the library (one of those installed with it, an extension or a program), or has the function
// with which the process names moments. It closes the file otherwise.
func (s *Set) OpenBeside(file *os.File, id host.FileID, path string, pid, user int) error {
	return s.beside.Open(file, id, path, s.memberID(pid), user)
}

// memberID returns the id of a process that is known to map a library; 0 for others.
func (s *Set) memberID(pid int) int {
	if s.Of(pid) == nil {
		return 0
	}
	return pid
}

// besideProbes finds the probes of a file beside the library.
func besideProbes(file *os.File, size int64) (offsets, cookies []uint64, show string) {
	elf, err := symbolize.New(file, size)
	if err != nil {
		return nil, nil, ""
	}
	defer elf.Close()
	if layout.IsLibrary(elf) {
		return nil, nil, ""
	}
	var shown []string
	if list := layout.Beside(elf); len(list) > 0 {
		offsets, cookies = exceptionProbes(list)
		shown = append(shown, "failures")
	}
	if at, ok := layout.Mark(elf); ok {
		offsets = append(offsets, at)
		cookies = append(cookies, uint64(bpf.KernelProbePROBE_MARK)|uint64(bpf.KernelCookieCOOKIE_BESIDE))
		shown = append(shown, "marks")
	}
	return offsets, cookies, strings.Join(shown, " and ")
}
