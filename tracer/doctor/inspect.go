package doctor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/heap"
	"ttmem/tracer/layout"
	"ttmem/tracer/place"
)

// Inspection is the layout found in a tt-metal library, an element of `ttmem doctor
// --json`.
type Inspection struct {
	Path    string `json:"path"`
	Release string `json:"release"`
	BuildID string `json:"build_id"`
	// Fields are offsets by name, from Buffer * or the object that the name begins with:
	// "0x10+0x8" is the field at offset 8 behind the pointer at offset 16.
	Fields map[string]string `json:"fields"`
	// Single are the fields that only one function supports.
	Single []string `json:"single_source"`
	// Probes are the probes' addresses in the file, by name.
	Probes map[string]string `json:"probes"`
	// Missing are the parts that were not found, and the features lost with them.
	Missing []layout.Missing `json:"missing"`
	// Untraced is why nothing of the library is traced; "" if it is.
	Untraced string `json:"untraced,omitempty"`
	// Slow are the probes on instructions that the kernel has to single-step.
	Slow []string `json:"single_stepped"`
	// Owner is the user to whom the file belongs, of a library that processes map.
	Owner *int `json:"owner,omitempty"`
	// Deleted is true if the file has no name any more, or never had one.
	Deleted bool `json:"deleted,omitempty"`
	// Processes are those that map the library, and RunsOn is on what each of them runs its programs.
	Processes []int       `json:"processes,omitempty"`
	RunsOn    []host.Runs `json:"runs_on,omitempty" schema:"|card|mock device|simulator"`
}

// InspectFile inspects a library file.
func InspectFile(path string) (*Inspection, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, host.WithoutPath(err))
	}
	defer f.Close()
	return inspect(f, path, true, host.Open)
}

// maxMapped is how many libraries of the processes of one user are inspected: each takes a second.
const maxMapped = 16

// InspectMapped inspects the libraries that processes map, and returns how many of each user it did not
// inspect, because they are too many.
func InspectMapped() (list []*Inspection, more map[int]int, err error) {
	pids, err := host.PIDs()
	if err != nil {
		return nil, nil, err
	}
	has := make(map[int]int) // by user
	more = make(map[int]int)
	var proc host.Proc
	found := make(map[host.FileID]*Inspection)
	for _, pid := range pids {
		maps, err := proc.FileMappings(pid)
		if err != nil {
			continue
		}
		for _, m := range maps {
			one, known := found[m.File]
			if !known {
				f, err := proc.OpenMapped(pid, m.Start, m.End)
				if err != nil {
					continue
				}
				user := host.RealUser(pid)
				info, err := f.Stat()
				if err == nil {
					one, err = inspect(f, m.Path, has[user] < maxMapped, func(path string) (*os.File, error) { return host.OpenInRoot(pid, path) })
				}
				f.Close()
				found[m.File] = one
				switch {
				case errors.Is(err, errTooMany):
					more[user]++
				case err == nil:
					has[user]++
					one.Owner, one.Deleted = new(place.Owner(info)), isDeleted(info)
					list = append(list, one)
				}
			}
			if one != nil && !slices.Contains(one.Processes, pid) {
				one.Processes = append(one.Processes, pid)
				one.RunsOn = append(one.RunsOn, proc.RunsOn(pid))
			}
		}
	}
	return list, more, nil
}

// addParts adds fields behind a pointer, named after the object that holds them.
func (i *Inspection) addParts(l *layout.Layout) {
	last := func(name string) layout.Chain {
		c := l.Fields[name]
		return c[max(len(c)-1, 0):]
	}
	for name, c := range map[string]layout.Chain{
		"hooked_allocation_(rel impl)": last("hooked_allocation_"),
		"Program->runtime_id":          slices.Concat(l.Fields["Program.impl"], l.Fields["ProgramImpl.runtime_id"]),
	} {
		if len(c) > 0 {
			i.Fields[name] = c.String()
		}
	}
}

// errTooMany means that a file is a library that is one too many.
var errTooMany = errors.New("too many libraries")

func inspect(f *os.File, path string, derive bool, in func(string) (*os.File, error)) (*Inspection, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a file", path)
	}
	elf, err := symbolize.New(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer elf.Close()
	if !derive && layout.IsLibrary(elf) {
		return nil, errTooMany
	}
	l, err := layout.Derive(elf)
	stripped := errors.Is(err, layout.ErrStripped)
	if err != nil && !stripped {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if stripped {
		l = &layout.Layout{BuildID: elf.BuildID()}
	}
	one := &Inspection{
		Path: path, Release: layout.Release(in, path), BuildID: l.BuildID,
		Fields: make(map[string]string), Probes: make(map[string]string),
		Single:  append([]string{}, l.Single...),
		Missing: append([]layout.Missing{}, l.Missing...), Slow: []string{},
	}
	if !stripped {
		_, err = heap.NewLibrary(l, path, one.Release)
	}
	if err != nil {
		one.Untraced = err.Error()
	}
	for name, c := range l.Fields {
		one.Fields[name] = c.String()
	}
	one.addParts(l)
	for name, p := range l.Probes {
		one.Probes[name] = fmt.Sprintf("%#x", p.ProbeAddr)
		if p.Stepped && name != "throw" { // throw is rare anyway
			one.Slow = append(one.Slow, name)
		}
	}
	slices.SortFunc(one.Slow, strings.Compare)
	return one, nil
}
