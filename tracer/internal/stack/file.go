package stack

import (
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/event"
)

// codeFile is a file that a process maps as code, or the code that the kernel gives to each
// process (the vdso). It stays open, so that it can be read after it was deleted, and in
// any mount namespace.
type codeFile struct {
	path string
	file *os.File       // nil: the vdso, or not open
	elf  *symbolize.ELF // nil: no ELF file
	// names bounds the memory for the names of functions, of all files.
	names *symbolize.Cache

	// python is set if the file is a CPython interpreter. refused is the reason why its
	// frames cannot be read if ttmem does not know this version.
	python  *python.Runtime
	refused error
	// pthread is set if the file is the C library.
	pthread *python.Pthread
	// loader is set if the file is the dynamic linker.
	loader *loader

	reading sync.Mutex // locked while its unwind rows are read
	same    string     // cache of sameRows
	rows    *unwind.Table
	// read is true once the rows were read; their results do not change until it is reset
	read atomic.Bool
	// user is the user whose process needs the rows
	user atomic.Int64
	// table is the kernel side's copy of the rows; nil if there are none or, if refusal is
	// set, for that reason.
	table   *kernelTable
	refusal error
}

// loader is the interface of the dynamic linker for debuggers.
type loader struct {
	debugState symbolize.Symbol // called before and after each change
	debug      symbolize.Symbol // its struct r_debug
}

// cookie is the cookie of the probe on debugState.
func (l *loader) cookie() uint64 { return l.debug.Addr - l.debugState.Addr }

// anonymous is code without a file, generated inside the process.
var anonymous = &codeFile{path: "[anonymous]"}

// openCodeFile reads the parts of a file that unwinding needs. The cache is that of names.
func openCodeFile(r io.ReaderAt, size int64, path string, cache *symbolize.Cache) *codeFile {
	f := &codeFile{path: path, names: cache}
	elf, err := symbolize.New(r, size)
	if err != nil {
		return f
	}
	f.elf = elf
	f.python, err = python.Find(elf)
	if err != nil && !errors.Is(err, python.ErrNotPython) {
		f.refused = err
	}
	if name := filepath.Base(path); strings.HasPrefix(name, "libc.so") || strings.HasPrefix(name, "libc-") {
		if p, err := python.Threads(elf); err == nil {
			f.pthread = &p
		}
	}
	if strings.HasPrefix(filepath.Base(path), "ld-") || strings.HasPrefix(filepath.Base(path), "ld.so") {
		state, ok := elf.Lookup("_dl_debug_state")
		debug, ok2 := elf.Lookup("_r_debug")
		if ok && ok2 {
			f.loader = &loader{state, debug}
		}
	}
	elf.Forget() // what was looked up is not needed again
	return f
}

// buildID is equal for copies of one build; "" if the file has none.
func (f *codeFile) buildID() string {
	if f.elf == nil {
		return ""
	}
	return f.elf.BuildID()
}

// frameBytes is an upper bound of the bytes that rowReader.read reads.
func (f *codeFile) frameBytes() uint64 {
	section, ok := f.elf.EHFrame()
	switch {
	case !ok: // the segments say where frames are
		return min(f.elf.Size(), unwind.MaxFrames)
	case section.Size > unwind.MaxFrames: // it is refused
		return 0
	}
	return section.Size
}

// sameRows returns a key that is equal for files with the same unwind rows: copies of one build,
// and a file that is opened again. It is a hash of the data that rows are made of. A build ID
// would not do: some files have none, and a file can be made with that of another. "" stands for
// no key. It calls pause now and then, and returns its error.
func (f *codeFile) sameRows(pause func() error) (string, error) {
	section, ok := f.elf.EHFrame()
	if !ok || section.Size > unwind.MaxFrames {
		return "", nil
	}
	var h maphash.Hash
	h.SetSeed(rowsSeed)
	err := f.elf.EachPart(section, func(part []byte) error {
		h.Write(part)
		return pause()
	})
	if err != nil {
		return "", err
	}
	maphash.WriteComparable(&h, section)
	for _, p := range f.elf.ProgramHeaders() {
		maphash.WriteComparable(&h, p)
	}
	return fmt.Sprintf("%x", h.Sum64()), nil
}

var rowsSeed = maphash.MakeSeed()

// inEval reports whether an address of the file lies in Python's evaluation loop.
func (f *codeFile) inEval(addr uint64) bool {
	if f.python == nil {
		return false
	}
	return slices.ContainsFunc(f.python.Eval, func(r python.Range) bool { return r.Contains(addr) })
}

// withoutRows reports whether the file has no unwind rows, so that frame pointers may work.
func (f *codeFile) withoutRows() bool {
	return f.elf == nil || f.read.Load() && f.table == nil && f.refusal == nil
}

// frame returns the function at an address of the file. Lines and inlined calls are
// resolved when a recording is shown: root does not parse DWARF of a user's file.
func (f *codeFile) frame(addr uint64, full bool) event.Frame {
	frame := event.Frame{
		Kind: event.Native, Module: filepath.Base(f.path), BuildID: f.buildID(), Address: addr,
	}
	if f.elf == nil {
		return frame
	}
	if frame.BuildID != "" && filepath.IsAbs(f.path) {
		frame.Path = f.path
	}
	fn, _ := f.elf.Function(addr)
	f.names.Used(f.elf)
	frame.Name, frame.Symbol = fn.Name, fn.Symbol
	if full {
		frame.Name = symbolize.FullName(fn.Symbol)
	}
	return frame
}
