package stack

// This file reads the unwind rows of files in the background, which takes a second of CPU time
// for a program that imports PyTorch. Meanwhile, processes are published with the rows that were
// read.

import (
	"errors"
	"maps"
	"math"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
	"weak"

	"ttmem/symbolize/unwind"
)

// rowsPatience is how long publishing a process's code waits for its rows. Most files take a
// millisecond.
const rowsPatience = 30 * time.Millisecond

// maxUnpublished is how long publishing rows may wait for other rows.
const maxUnpublished = 100 * time.Millisecond

// maxReaders bounds the files that are read at the same time, and so the memory for them. One
// processor stays free for the traced programs and for the reader of events.
const maxReaders = 4

// quickFrames is the size of frames below which a file's rows are read in a few
// milliseconds.
const quickFrames = 1 << 18

// largeFrames is the size of frames from which files are read one at a time, and their memory is
// returned before the next one.
const largeFrames = 8 << 20

// maxAhead bounds the frames that are read before the kernel side is loaded, and whose rows
// are kept until then.
const maxAhead = 64 << 20

// errStopped ends the reading of a file when tracing ends.
var errStopped = errors.New("tracing has ended")

// rowReader reads the rows of files, and loads them into the kernel.
type rowReader struct {
	*pace
	tables   *unwindTables // nil: not loaded yet
	wereRead func()        // publishes the processes that lacked rows
	progress chan struct{} // gets something when a file was read
	large    chan struct{} // full while a large file is read

	mu       sync.Mutex
	byRows   map[string]*kernelTable         // by codeFile.sameRows
	files    map[weak.Pointer[codeFile]]bool // to read; true: it is being read
	readers  int
	done     chan struct{} // closed when there are no readers; nil if there are none
	reported time.Time     // to the processes that lack rows
}

func newRowReader(p *pace, wereRead func()) *rowReader {
	return &rowReader{
		pace: p, wereRead: wereRead, progress: make(chan struct{}, 1), large: make(chan struct{}, 1),
		byRows: make(map[string]*kernelTable), files: make(map[weak.Pointer[codeFile]]bool),
	}
}

// soon starts reading the rows of files in the background, and waits a moment for small
// files.
func (r *rowReader) soon(files []*codeFile) {
	r.begin(files)
	patience := time.After(rowsPatience)
	small := func(f *codeFile) bool { return !f.read.Load() && f.frameBytes() < quickFrames }
	for slices.ContainsFunc(files, small) {
		select {
		case <-r.progress:
		case <-patience:
			return
		case <-r.closing.Done():
			return
		}
	}
}

func (r *rowReader) begin(files []*codeFile) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, f := range files {
		if w := weak.Make(f); !r.files[w] {
			r.files[w] = false
		}
	}
	for ; r.readers < min(len(r.files), max(1, runtime.NumCPU()-1), maxReaders); r.readers++ {
		if r.readers == 0 {
			r.done, r.reported = make(chan struct{}), time.Now()
		}
		go func() {
			r.readFiles(all)
		}()
	}
}

// allRead returns a channel that is closed when no more files are being read; nil if none are.
func (r *rowReader) allRead() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.done
}

// readFiles reads files whose size is below limit until there are none left, the smallest first.
// A large file does not delay others: while it is read, smaller ones go first. With a limit of
// all, the reader then ends.
func (r *rowReader) readFiles(limit uint64) {
	const muchLess = 4
	for n := 0; ; n++ {
		r.mu.Lock()
		f := r.smallest(limit)
		if n > 0 && (f == nil || time.Since(r.reported) > maxUnpublished) {
			r.reported = time.Now()
			r.wereRead()
		}
		if f == nil && limit == all {
			if r.readers--; r.readers == 0 {
				close(r.done)
				r.done = nil
			}
		}
		r.mu.Unlock()
		if f == nil {
			return
		}
		r.await()
		err := r.read(f, func() error {
			err := r.check()
			if err == nil {
				r.readFiles(min(f.frameBytes()/muchLess, largeFrames))
			}
			return err
		})
		r.mu.Lock()
		if err == nil && !f.read.Load() { // its table was dropped already, and is needed again
			r.files[weak.Make(f)] = false
		} else {
			delete(r.files, weak.Make(f))
		}
		r.mu.Unlock()
		select {
		case r.progress <- struct{}{}:
		default:
		}
	}
}

// all is the limit that no file reaches.
const all = math.MaxUint64

// smallest returns the smallest file, if it is smaller than limit; nil if there is none. It drops
// files that no process maps any more.
func (r *rowReader) smallest(limit uint64) (least *codeFile) {
	for w, begun := range r.files {
		f := w.Value()
		if f == nil {
			delete(r.files, w)
		} else if size := f.frameBytes(); !begun && size < limit {
			least, limit = f, size
		}
	}
	if least != nil {
		r.files[weak.Make(least)] = true
	}
	return least
}

// stop ends the reading of files after closing is done.
func (r *rowReader) stop() {
	r.mu.Lock()
	maps.DeleteFunc(r.files, func(_ weak.Pointer[codeFile], begun bool) bool { return !begun })
	done := r.done
	r.mu.Unlock()
	if done != nil {
		<-done
	}
}

// read reads a file's unwind rows and loads them into the kernel. Files with the same
// rows share a table. It calls pause now and then, and returns its error. Before the kernel
// side is loaded it only reads them.
func (r *rowReader) read(f *codeFile, pause func() error) (err error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	if f.elf == nil || f.read.Load() {
		return nil
	}
	freeMemory := func() {}
	if f.frameBytes() >= largeFrames {
		defer r.take(r.large)()
		freeMemory = debug.FreeOSMemory
		defer freeMemory()
	}
	f.table, f.refusal = nil, nil
	if f.same == "" {
		if f.same, err = f.sameRows(pause); errors.Is(err, errStopped) {
			return err
		}
	}
	r.mu.Lock()
	table := r.byRows[f.same]
	r.mu.Unlock()
	if table == nil || !r.tables.use(table) {
		if f.rows == nil {
			if f.rows, err = unwind.Build(f.elf, pause); errors.Is(err, errStopped) {
				return err
			}
			freeMemory()
		}
		switch {
		case errors.Is(err, unwind.ErrTooLarge):
			f.refusal = err
			f.read.Store(true)
			return nil
		case err != nil: // there are none
			f.read.Store(true)
			return nil
		case r.tables == nil:
			return nil
		}
		rows := f.rows
		f.rows = nil // they may be large, also if they were refused
		table, f.refusal = r.tables.load(rows, int(f.user.Load()))
		if f.refusal != nil {
			f.read.Store(true)
			return nil
		}
		if f.same != "" {
			r.mu.Lock()
			r.byRows[f.same] = table
			r.mu.Unlock()
		}
	}
	f.table, f.rows = table, nil
	f.read.Store(true)
	r.tables.release(table) // idle until a process's space refers to it
	return nil
}

// forgetTables forgets the tables that the kernel no longer has.
func (r *rowReader) forgetTables() {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.byRows, func(_ string, t *kernelTable) bool { return !r.tables.has(t) })
}
