package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/host"
)

// A Searcher searches processes. It remembers which files have what a search needs, because a process
// may map thousands of them. The zero value is ready for use.
type Searcher struct {
	mu    sync.Mutex
	kinds map[fileIdentity]fileKind
}

// A fileKind is what a file has for a search.
type fileKind uint8

const (
	hasPython    fileKind = 1 << iota // an interpreter
	hasFunctions                      // functions of ttnn and tt-metal that a search runs
)

// functions are some of those that a search runs: a file that exports one of them matters, whatever
// its name is.
var functions = []string{
	"_ZNK4ttnn6Tensor11mesh_bufferEv", "_ZNK2tt8tt_metal6Tensor11mesh_bufferEv",
	"_ZNK2tt8tt_metal11distributed10MeshBuffer18get_backing_bufferEv", "_ZNK2tt8tt_metal9ShapeBase4viewEv",
	"_ZN2tt8tt_metal11distributed10MeshDevice17get_program_cacheEv",
}

// HasFunctions reports whether a file has functions of ttnn and tt-metal that a search runs.
func HasFunctions(e *symbolize.ELF) bool { return e.Exports(functions...) }

// A fileIdentity changes with a file's content.
type fileIdentity struct {
	device, inode     uint64
	size              int64
	modified, changed syscall.Timespec
}

const (
	// maxFiles bounds the mapped files of a process that are inspected, and maxKinds those of which
	// the result is remembered.
	maxFiles, maxKinds = 1 << 14, 1 << 16
	// maxOpened bounds the files of a process that a search has open.
	maxOpened = 256
	// filesTime is how long opening the files of a process may take.
	filesTime = time.Minute
)

// A mapped file is mapped in a process: the File-th of those that were opened.
type mapped struct {
	host.Mapping
	File int
}

// opened are the files of a process that a search needs.
type opened struct {
	maps  []mapped
	files []*os.File
	kinds fileKind // of all together
	// unread says why some files could not be inspected.
	unread error
	// over says why some mappings were left out: the search is incomplete.
	over error
}

func (o *opened) close() {
	for _, f := range o.files {
		f.Close()
	}
}

// open opens the files of a process that a search needs, up to filesTime.
func (s *Searcher) open(ctx context.Context, proc *host.Proc, pid int) (*opened, error) {
	ctx, stop := context.WithTimeoutCause(ctx, filesTime, fmt.Errorf("its files could not be read in %v", filesTime))
	defer stop()
	o := &opened{}
	all, err := proc.FileMappings(pid)
	numbers := make(map[host.FileID]int) // of files; -1: not needed
	for _, m := range all {
		if ctx.Err() != nil {
			o.close()
			return nil, context.Cause(ctx)
		}
		number, known := numbers[m.File]
		switch {
		case known:
		case len(numbers) == maxFiles:
			o.unread = cmp.Or(o.unread, fmt.Errorf("it maps more than %d files", maxFiles))
			continue
		default:
			number = -1
			file, err := proc.OpenMapped(pid, m.Start, m.End)
			kind := fileKind(0)
			if err == nil {
				kind, err = s.kindOf(file)
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // it was unmapped meanwhile
			case err != nil:
				o.unread = cmp.Or(o.unread, fmt.Errorf("%s could not be read: %w", m.Path, err))
			case kind != 0 && len(o.files) == maxOpened:
				o.over = cmp.Or(o.over, fmt.Errorf("it maps more than %d files of Python and tt-metal", maxOpened))
			case kind != 0:
				o.kinds |= kind
				number = len(o.files)
				o.files = append(o.files, file)
			}
			if number < 0 && file != nil {
				file.Close()
			}
			numbers[m.File] = number
		}
		switch {
		case number < 0:
		case len(o.maps) == host.MaxCodeMappings:
			o.over = cmp.Or(o.over, fmt.Errorf("it has more than %d mappings of files of Python and tt-metal", len(o.maps)))
		default:
			m.Path = "" // the search does not need it
			o.maps = append(o.maps, mapped{m, number})
		}
	}
	return o, err
}

// LacksPython reports whether a process maps no Python interpreter; false if that cannot be read.
func (s *Searcher) LacksPython(ctx context.Context, proc *host.Proc, pid int) bool {
	o, err := s.open(ctx, proc, pid)
	if err != nil {
		return false
	}
	defer o.close()
	return o.kinds&hasPython == 0 && o.unread == nil && o.over == nil
}

// kindOf returns what a file has.
func (s *Searcher) kindOf(file *os.File) (kind fileKind, err error) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, err
	}
	id := fileIdentity{size: info.Size()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.device, id.inode, id.modified, id.changed = stat.Dev, stat.Ino, stat.Mtim, stat.Ctim
	}
	s.mu.Lock()
	kind, known := s.kinds[id]
	s.mu.Unlock()
	if known {
		return kind, nil
	}
	e, err := symbolize.New(file, info.Size())
	if err != nil && !errors.Is(err, symbolize.ErrNotELF) {
		return 0, err
	}
	if err == nil {
		if python.IsPython(e) {
			kind |= hasPython
		}
		if HasFunctions(e) {
			kind |= hasFunctions
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil || len(s.kinds) >= maxKinds {
		s.kinds = make(map[fileIdentity]fileKind)
	}
	s.kinds[id] = kind
	return kind, nil
}
