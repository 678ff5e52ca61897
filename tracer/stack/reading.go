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
	"sync/atomic"
	"time"
	"weak"

	"ttmem/symbolize/unwind"
	"ttmem/tracer/host"
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

// reading are the files whose rows are read in the background.
type reading struct {
	progress chan struct{} // gets something when a file was read
	mu       sync.Mutex
	files    map[weak.Pointer[codeFile]]bool // true: it is being read
	readers  int
	done     chan struct{} // closed when there are no readers; nil if there are none
	reported time.Time     // to the processes that lack rows
}

// readSoon starts reading the rows of files in the background, and waits a moment for small
// files.
func (s *Spaces) readSoon(files []*codeFile) {
	s.begin(files)
	patience := time.After(rowsPatience)
	small := func(f *codeFile) bool { return !f.read.Load() && f.frameBytes() < quickFrames }
	for slices.ContainsFunc(files, small) {
		select {
		case <-s.reading.progress:
		case <-patience:
			return
		case <-s.closing.Done():
			return
		}
	}
}

func (s *Spaces) begin(files []*codeFile) {
	r := &s.reading
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
			host.RaisePriority()
			s.readFiles(all)
		}()
	}
}

// allRead returns a channel that is closed when no more files are being read; nil if none are.
func (s *Spaces) allRead() <-chan struct{} {
	s.reading.mu.Lock()
	defer s.reading.mu.Unlock()
	return s.reading.done
}

// readFiles reads files whose size is below limit until there are none left, the smallest first.
// A large file does not delay others: while it is read, smaller ones go first. With a limit of
// all, the reader then ends.
func (s *Spaces) readFiles(limit uint64) {
	const muchLess = 4
	r := &s.reading
	for n := 0; ; n++ {
		r.mu.Lock()
		f := r.smallest(limit)
		if n > 0 && (f == nil || time.Since(r.reported) > maxUnpublished) {
			r.reported = time.Now()
			s.rowsWereRead()
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
		s.awaitAttaching()
		err := s.readRows(f, func() error {
			err := s.pauseReading()
			if err == nil {
				s.readFiles(min(f.frameBytes()/muchLess, largeFrames))
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
func (r *reading) smallest(limit uint64) (least *codeFile) {
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

// stopReading ends the reading of files after s.closing is done.
func (s *Spaces) stopReading() {
	r := &s.reading
	r.mu.Lock()
	maps.DeleteFunc(r.files, func(_ weak.Pointer[codeFile], begun bool) bool { return !begun })
	done := r.done
	r.mu.Unlock()
	if done != nil {
		<-done
	}
}

// rowsWereRead schedules publishing of the processes that lack rows.
func (s *Spaces) rowsWereRead() {
	s.mu.Lock()
	for pid, p := range s.byPID {
		if p.lacksRows && !s.dirty[pid] {
			s.dirty[pid] = false
		}
	}
	s.mu.Unlock()
	s.wakeUp()
}

// readRows reads a file's unwind rows and loads them into the kernel. Files with the same
// rows share a table. It calls pause now and then, and returns its error. Before the kernel
// side is loaded it only reads them.
func (s *Spaces) readRows(f *codeFile, pause func() error) (err error) {
	f.reading.Lock()
	defer f.reading.Unlock()
	if f.elf == nil || f.read.Load() {
		return nil
	}
	freeMemory := func() {}
	if f.frameBytes() >= largeFrames {
		defer s.take(s.large)()
		freeMemory = debug.FreeOSMemory
		defer freeMemory()
	}
	f.table, f.refusal = nil, nil
	if f.same == "" {
		if f.same, err = f.sameRows(pause); errors.Is(err, errStopped) {
			return err
		}
	}
	s.mu.Lock()
	table := s.byRows[f.same]
	s.mu.Unlock()
	if table == nil || !s.tables.use(table) {
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
		case s.tables == nil:
			return nil
		}
		rows := f.rows
		f.rows = nil // they may be large, also if they were refused
		table, f.refusal = s.tables.load(rows, int(f.user.Load()))
		if f.refusal != nil {
			f.read.Store(true)
			return nil
		}
		if f.same != "" {
			s.mu.Lock()
			s.byRows[f.same] = table
			s.mu.Unlock()
		}
	}
	f.table, f.rows = table, nil
	f.read.Store(true)
	s.tables.release(table) // idle until a process's space refers to it
	return nil
}

// largePatience is how long a large file waits for another one, which may be on a file system
// that does not answer.
const largePatience = 10 * time.Second

// take waits for a turn, and returns a function that gives it back.
func (s *Spaces) take(turn chan struct{}) (giveBack func()) {
	select {
	case turn <- struct{}{}:
		return func() { <-turn }
	case <-s.closing.Done():
	case <-time.After(largePatience):
	}
	return func() {}
}

// pauseReading waits while a library is being attached to. Its error says that tracing ends.
func (s *Spaces) pauseReading() error {
	s.awaitAttaching()
	select {
	case <-s.closing.Done():
		return errStopped
	default:
		return nil
	}
}

// maxPause bounds how long the reading of files is suspended, because a library may be on a file
// system that does not answer.
const maxPause = time.Second

// Pause suspends the reading of files until resume is called, or for maxPause, so that attaching
// to a library is quick.
func (s *Spaces) Pause() (resume func()) {
	if s == nil {
		return func() {}
	}
	s.pausedUntil.Store(time.Now().Add(maxPause).UnixNano())
	return func() { s.pausedUntil.Store(0) }
}

// each calls do for 0 to n-1 on all processors. Attaching to a library takes precedence.
func (s *Spaces) each(n int, do func(i int)) {
	var wait sync.WaitGroup
	var next atomic.Int64
	for range min(n, runtime.NumCPU()) {
		wait.Go(func() {
			host.RaisePriority()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				s.awaitAttaching()
				do(i)
			}
		})
	}
	wait.Wait()
}

// awaitAttaching returns when no library is being attached to.
func (s *Spaces) awaitAttaching() {
	for time.Now().UnixNano() < s.pausedUntil.Load() {
		time.Sleep(time.Millisecond)
	}
}
