package doctor

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/host"
	"ttmem/tracer/owner"
	"ttmem/tracer/place"
)

// A Process says what can be traced of a running process, an element of `ttmem doctor PID --json`. Its tt-metal libraries
// are among the libraries of the document.
type Process struct {
	PID int `json:"pid" user:"user"`
	// Name is that of its first thread, and UID the user that started it.
	Name string `json:"name"`
	UID  int    `json:"uid"`
	// Refused is why the user who asks may not trace it; "" if they may.
	Refused string    `json:"refused"`
	RunsOn  host.Runs `json:"runs_on" schema:"|card|mock device|simulator"`
	// TTMetal are the paths of the tt-metal libraries that it maps.
	TTMetal []string `json:"tt_metal"`
	// Python is the version of its interpreter, in the file Interpreter; "" if it has none. NoFrames says why its frames
	// are not read, and NoOwners why the owners of buffers are not; "" if they are.
	Python      string `json:"python"`
	Interpreter string `json:"interpreter"`
	NoFrames    string `json:"no_frames"`
	NoOwners    string `json:"no_owners"`
	// freeThreaded is set for a Python without a GIL.
	freeThreaded bool
	// Files is how many files of code it maps. Unreadable are those that the user who asks cannot read. At the code of
	// NoUnwind call stacks end, for want of unwind information. Lines are those whose debug information has lines.
	Files      int      `json:"files"`
	Unreadable []string `json:"unreadable"`
	NoUnwind   []string `json:"no_unwind"`
	Lines      []string `json:"lines"`
}

// InspectProcess says what can be traced of a process, and inspects the tt-metal libraries that it maps.
func InspectProcess(pid int) (*Process, []*Inspection, error) {
	var proc host.Proc
	maps, err := proc.FileMappings(pid)
	switch {
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH):
		return nil, nil, fmt.Errorf("no process %d; `pgrep -af python` finds those of Python", pid)
	case errors.Is(err, os.ErrPermission) && os.Geteuid() != 0:
		return nil, nil, fmt.Errorf("process %d is another user's: run ttmem as root", pid)
	case errors.Is(err, os.ErrPermission):
		return nil, nil, fmt.Errorf("cannot read process %d: this needs CAP_SYS_PTRACE in the process's namespace", pid)
	case err != nil:
		return nil, nil, fmt.Errorf("cannot read process %d: %w", pid, host.WithoutPath(err))
	}
	p := &Process{PID: pid, Name: host.ThreadName(pid, pid), UID: host.RealUser(pid), RunsOn: proc.RunsOn(pid)}
	var libraries []*Inspection
	functions := false
	seen := make(map[host.FileID]bool)
	for _, m := range maps {
		if seen[m.File] {
			continue
		}
		seen[m.File] = true
		p.Files++
		f, err := openCode(&proc, pid, m)
		if err != nil {
			p.Unreadable = append(p.Unreadable, m.Path)
			continue
		}
		one, hasFunctions := p.add(f, m.Path)
		functions = functions || hasFunctions
		if one != nil && len(libraries) < maxMapped {
			libraries = append(libraries, one)
		}
		f.Close()
	}
	switch {
	case p.Python == "" && p.NoFrames == "":
		p.NoFrames, p.NoOwners = "it runs no Python", "it runs no Python"
	case p.NoFrames != "":
		p.NoOwners = p.NoFrames
	case p.freeThreaded:
		p.NoOwners = owner.ErrFreeThreaded.Error()
	case !functions:
		p.NoOwners = "no file that it maps exports ttnn's functions that read tensors"
	}
	return p, libraries, nil
}

// openCode opens a file that a process maps: as root does, or else by its name, if it is still that file.
func openCode(proc *host.Proc, pid int, m host.Mapping) (*os.File, error) {
	f, err := proc.OpenMapped(pid, m.Start, m.End)
	if !errors.Is(err, os.ErrPermission) {
		return f, err
	}
	if f, err = host.OpenInRoot(pid, m.Path); err != nil {
		return nil, err
	}
	id, err := host.FileIDOf(f)
	m.File.Generation = 0
	if err == nil && id != m.File {
		err = os.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// add adds what a file of code contributes. It returns the tt-metal library in it, nil if there is none, and whether the
// file has functions with which owners are found.
func (p *Process) add(f *os.File, path string) (library *Inspection, functions bool) {
	info, err := f.Stat()
	if err != nil {
		return nil, false
	}
	e, err := symbolize.New(f, info.Size())
	if err != nil {
		return nil, false
	}
	defer e.Close()
	unwinds := slices.ContainsFunc(e.ProgramHeaders(), func(h elf.ProgHeader) bool { return h.Type == elf.PT_GNU_EH_FRAME })
	if _, ok := e.EHFrame(); !ok && !unwinds {
		p.NoUnwind = append(p.NoUnwind, path)
	}
	if e.HasDebugInfo() {
		p.Lines = append(p.Lines, path)
	}
	switch runtime, err := python.Find(e); {
	case err == nil:
		p.Python, p.Interpreter, p.NoFrames = fmt.Sprintf("3.%d", runtime.Minor), path, ""
		p.freeThreaded = runtime.FreeThreaded
	case !errors.Is(err, python.ErrNotPython) && p.Python == "":
		p.Interpreter, p.NoFrames = path, err.Error()
	}
	one, err := inspect(f, path, true, func(dir string) (*os.File, error) { return host.OpenInRoot(p.PID, dir) })
	if err == nil {
		one.Owner, one.Deleted = new(place.Owner(info)), isDeleted(info)
		one.Processes, one.RunsOn = []int{p.PID}, []host.Runs{p.RunsOn}
		p.TTMetal = append(p.TTMetal, path)
		library = one
	}
	return library, owner.HasFunctions(e)
}

// isDeleted reports whether no folder has a file.
func isDeleted(info os.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 0
}
