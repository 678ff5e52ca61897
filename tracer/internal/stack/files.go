package stack

// This file opens the files that processes map.

import (
	"bytes"
	"cmp"
	"errors"
	"maps"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"weak"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
	"ttmem/tracer/host"
)

// codeFiles opens files that processes map, and has them open as long as one is mapped or a stack needs it.
type codeFiles struct {
	*pace
	readers *host.Readers
	again   func(pid int)   // publishes a process again whose files did not open
	names   symbolize.Cache // of all files
	large   chan struct{}   // full while a large file is opened
	// collecting is true while a garbage collection is scheduled that closes unused files.
	collecting atomic.Bool

	mu   sync.Mutex
	byID map[host.FileID]weak.Pointer[codeFile]
}

// open opens the files of a process's mappings that are not known yet. known has its mappings that are:
// without a file, code does not change while it is mapped.
func (s *codeFiles) open(pid int, maps []host.Mapping, known *spaceView) []codeMapping {
	mappings := make([]codeMapping, len(maps))
	var unknown []int // one mapping of each unknown file, and all mappings without a file
	s.mu.Lock()
	first := make(map[host.FileID]bool)
	for i, m := range maps {
		to := &mappings[i]
		to.start, to.end = m.Start, m.End
		if m.File.Inode != 0 {
			to.file = s.byID[m.File].Value()
		} else if known != nil {
			if k, ok := known.find(m.Start); ok && k.start == m.Start && k.end == m.End && k.file.path == m.Path {
				to.file = k.file
			}
		}
		if to.file == nil && !first[m.File] {
			first[m.File] = m.File.Inode != 0
			unknown = append(unknown, i)
		}
	}
	s.mu.Unlock()
	s.each(len(unknown), func(i int) { mappings[unknown[i]].file = s.openOne(pid, maps[unknown[i]]) })
	opened := make(map[host.FileID]*codeFile)
	for _, i := range unknown {
		if id, f := maps[i].File, mappings[i].file; id.Inode != 0 {
			if f != anonymous {
				f = s.add(id, f)
			}
			opened[id], mappings[i].file = f, f
		}
	}
	for i, m := range maps {
		to := &mappings[i]
		*to = newCodeMapping(m, cmp.Or(to.file, opened[m.File]))
	}
	return mappings
}

// add adds a file that was opened, and returns it, or the same one that was opened meanwhile.
func (s *codeFiles) add(id host.FileID, f *codeFile) *codeFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	if other := s.byID[id].Value(); other != nil {
		return other
	}
	s.byID[id] = weak.Make(f)
	return f
}

func (s *codeFiles) openOne(pid int, m host.Mapping) *codeFile {
	if m.Path == "[vdso]" {
		return s.openVDSO(pid, m.Start, m.End)
	}
	if m.File.Inode == 0 {
		return anonymous
	}
	file, err := s.readers.OpenMapped(pid, m.Start, m.End)
	if errors.Is(err, host.ErrNoAnswer) {
		s.again(pid)
	}
	if err != nil {
		return anonymous
	}
	f, _ := s.read(file, m.Path)
	return cmp.Or(f, anonymous)
}

// read reads the parts of an open file that unwinding needs, or closes it.
func (s *codeFiles) read(file *os.File, path string) (*codeFile, error) {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = unix.EINVAL
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	if info.Size() >= largeFile {
		defer s.take(s.large)()
	}
	f := openCodeFile(file, info.Size(), path, &s.names)
	f.file = file
	return f, nil
}

// openAt opens a file that no process maps yet.
func (s *codeFiles) openAt(path string) (*codeFile, error) {
	file, err := host.Open(path)
	if err != nil {
		return nil, err
	}
	return s.keep(file, path)
}

// keep takes over an open file that no process maps yet.
func (s *codeFiles) keep(file *os.File, path string) (*codeFile, error) {
	id, err := host.FileIDOf(file)
	if err != nil {
		file.Close()
		return nil, err
	}
	f, err := s.read(file, path)
	if err == nil {
		f = s.add(id, f)
	}
	return f, err
}

// openVDSO reads the code that the kernel maps into each process.
func (s *codeFiles) openVDSO(pid int, start, end uint64) *codeFile {
	f := &codeFile{path: "[vdso]"}
	if end-start > 1<<20 {
		return f
	}
	image, err := s.readers.ReadMemory(pid, start, int(end-start))
	if err != nil {
		return f
	}
	return openCodeFile(bytes.NewReader(image), int64(len(image)), "[vdso]", &s.names)
}

// largeFile is the size from which files are opened one at a time: while CPython is opened, its
// names take as much memory.
const largeFile = 16 << 20

// closeAfter is how long files that no process maps may stay open.
const closeAfter = 5 * time.Second

// closeSoon schedules a garbage collection, which closes files that no process maps and no
// stack needs. In an idle service the next one might be minutes away; until then their disk space
// is not freed, and their file systems cannot be unmounted.
func (s *codeFiles) closeSoon() {
	s.mu.Lock()
	maps.DeleteFunc(s.byID, func(_ host.FileID, f weak.Pointer[codeFile]) bool { return f.Value() == nil })
	s.mu.Unlock()
	if s.collecting.CompareAndSwap(false, true) {
		time.AfterFunc(closeAfter, func() {
			s.collecting.Store(false)
			runtime.GC()
		})
	}
}
