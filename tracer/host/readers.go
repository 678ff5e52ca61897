package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/tracer/quota"
)

// A page of a process may be on a file system that its user serves and that never answers. On
// Linux a thread that waits for such a page cannot be killed, and its process cannot end. So
// child processes do the reading: they can be left behind.

const (
	// ReadPatience is how long a read of a process may take: see Patient.
	ReadPatience = 2 * time.Second
	// readersPerUser bounds the simultaneous reads from the processes of a user, and maxReaders
	// those of all users, as quota.New says. They include reads that were given up and have not returned.
	readersPerUser, maxReaders = 4, 64
	// idleReaders is how many children wait for work.
	idleReaders = 4
)

// ErrNoAnswer means that a read was given up.
var ErrNoAnswer = errors.New("its memory does not answer")

// Readers read files of /proc/PID and memory that may not answer.
type Readers struct {
	Proc
	mu     sync.Mutex
	idle   []*reader
	busy   *quota.Quota  // by RealUser
	freed  chan struct{} // closed when a reader is free
	closed bool
}

// NewReaders returns Readers, and starts a first child.
func NewReaders() *Readers {
	r := &Readers{busy: quota.New(readersPerUser, maxReaders), freed: make(chan struct{})}
	go func() {
		if first, err := startReader(); err == nil {
			r.keep(first)
		}
	}()
	return r
}

// A ReadableProcess is a process whose memory is read. It is neither stopped nor written to.
type ReadableProcess struct {
	PID     int
	User    int // RealUser
	readers *Readers
	dir     string // of /proc
}

// Of returns a process.
func (r *Readers) Of(pid int) ReadableProcess {
	return ReadableProcess{pid, RealUser(pid), r, ProcDir(pid)}
}

// DataMappings calls Proc.DataMappings.
func (p ReadableProcess) DataMappings() ([]Mapping, error) { return p.readers.DataMappings(p.PID) }

// HasNoMemory calls Proc.HasNoMemory.
func (p ReadableProcess) HasNoMemory() bool { return p.readers.HasNoMemory(p.PID) }

// UsedPages calls Proc.UsedPages.
func (p ReadableProcess) UsedPages(from uint64, pages int) ([]byte, error) {
	return p.readers.UsedPages(p.PID, from, pages)
}

// CommandLine returns the command line of the process that had the id at a time, with blanks between the words; "" if it
// cannot be read, or another process has the id.
func (p ReadableProcess) CommandLine(ctx context.Context, atNs uint64) (command string) {
	request := func(r *sharedRead) { r.Thread, r.Ranges = 0, int64(copy(r.File[:], p.dir+"/cmdline")) }
	_ = p.read(ctx, request, func(text []byte) {
		command = strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
	})
	if BeganAfter(p.PID, atNs) {
		return ""
	}
	return command
}

// read has a reader carry out a request, and passes the data to use.
func (p ReadableProcess) read(ctx context.Context, request func(*sharedRead), use func(data []byte)) error {
	r := p.readers
	one, err := r.acquire(ctx, p.User)
	if err != nil {
		return err
	}
	request(one.shared)
	if err := one.ask(ctx); err != nil {
		go func() {
			one.end()
			r.release(p.User)
		}()
		return err
	}
	errno := unix.Errno(one.shared.Errno)
	if errno == 0 {
		use(one.shared.Data[:one.shared.Bytes])
	}
	r.keep(one)
	r.release(p.User)
	if errno != 0 {
		return errno
	}
	return nil
}

// acquire returns a reader for a process of a user. It waits for other reads of that user.
func (r *Readers) acquire(ctx context.Context, user int) (one *reader, err error) {
	if err := r.share(ctx, user, ReadPatience); err != nil {
		return nil, err
	}
	r.mu.Lock()
	if last := len(r.idle) - 1; last >= 0 {
		one, r.idle = r.idle[last], r.idle[:last]
	}
	r.mu.Unlock()
	if one == nil {
		if one, err = startReader(); err != nil {
			r.release(user)
		}
	}
	return one, err
}

// share waits until a user's process may be read, for as long as patience says. release ends that.
func (r *Readers) share(ctx context.Context, user int, patience time.Duration) error {
	ctx, stop := Patient(ctx, patience)
	defer stop()
	for ctx.Err() == nil {
		r.mu.Lock()
		free := r.busy.Take(user, 1)
		freed := r.freed
		r.mu.Unlock()
		if free {
			return nil
		}
		select {
		case <-freed:
		case <-ctx.Done():
		}
	}
	return context.Cause(ctx)
}

// release ends a read of a user's process.
func (r *Readers) release(user int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy.Take(user, -1)
	close(r.freed)
	r.freed = make(chan struct{})
}

// keep keeps a reader for the next read, or ends it if there are enough.
func (r *Readers) keep(one *reader) {
	r.mu.Lock()
	more := !r.closed && len(r.idle) < idleReaders
	if more {
		r.idle = append(r.idle, one)
	}
	r.mu.Unlock()
	if !more {
		one.end()
	}
}

// Close ends the children that can end.
func (r *Readers) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	idle := r.idle
	r.idle, r.closed = nil, true
	r.mu.Unlock()
	for _, one := range idle {
		one.end()
	}
}

// reader is a child process that reads.
type reader struct {
	child  *exec.Cmd
	conn   *os.File // a byte is a request, and a byte back says that it is done
	shared *sharedRead
}

// sharedRead is the memory that a reader shares with its parent.
type sharedRead struct {
	Thread int64 // the thread whose memory is read; 0: a file is read
	Ranges int64 // the number of ranges, or the length of the file's name
	Remote [maxRanges]unix.RemoteIovec
	File   [64]byte
	// the result
	Errno, Bytes int64
	Data         [maxReadBytes]byte
}

func mapShared(file *os.File) (*sharedRead, error) {
	const size = int(unsafe.Sizeof(sharedRead{}))
	mem, err := unix.Mmap(int(file.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*sharedRead)(unsafe.Pointer(unsafe.SliceData(mem))), nil
}

func (r *sharedRead) unmap() {
	_ = unix.MunmapPtr(unsafe.Pointer(r), unsafe.Sizeof(*r))
}

// readerName is the name under which a program runs as a reader of its parent's.
const readerName = "ttmem-reader"

func init() {
	if len(os.Args) == 1 && os.Args[0] == readerName {
		answerReads(os.NewFile(3, "parent"), os.NewFile(4, "shared"))
		os.Exit(0)
	}
}

func startReader() (_ *reader, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("starting a reader: %w", err)
		}
	}()
	memory, err := unix.MemfdCreate(readerName, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(memory), "shared")
	defer file.Close()
	if err := file.Truncate(int64(unsafe.Sizeof(sharedRead{}))); err != nil {
		return nil, err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	own, theirs := os.NewFile(uintptr(pair[0]), "reader"), os.NewFile(uintptr(pair[1]), "parent")
	defer theirs.Close()
	child := newChild([]*os.File{theirs, file}, readerName)
	shared, err := mapShared(file)
	if err != nil {
		own.Close()
		return nil, err
	}
	if err := startChild(child.Start); err != nil {
		own.Close()
		shared.unmap()
		return nil, err
	}
	return &reader{child, own, shared}, nil
}

// ask waits for the answer to a request. After an error the reader cannot be used again.
func (one *reader) ask(ctx context.Context) error {
	ctx, end := Patient(ctx, ReadPatience)
	defer end()
	stop := context.AfterFunc(ctx, func() { _ = one.conn.SetDeadline(time.Unix(1, 0)) })
	var signal [1]byte
	_, err := one.conn.Write(signal[:])
	if err == nil {
		_, err = io.ReadFull(one.conn, signal[:])
	}
	switch {
	case !stop():
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("asking a reader: %w", err)
	}
	return nil
}

// end returns when the child has ended, which may be never.
func (one *reader) end() {
	one.conn.Close()
	one.shared.unmap()
	_ = one.child.Process.Kill()
	_ = one.child.Wait() // it was killed
}

// answerReads is the main loop of a reader. It returns when the parent has ended.
func answerReads(parent, file *os.File) {
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(readerName+"\x00"))), 0, 0, 0)
	r, err := mapShared(file)
	if err != nil {
		return
	}
	var signal [1]byte
	for {
		if _, err := parent.Read(signal[:]); err != nil {
			return
		}
		n, err := r.answer()
		if r.Bytes, r.Errno = int64(max(n, 0)), 0; err != nil && !errors.Is(err, io.EOF) {
			errno := unix.EIO
			errors.As(err, &errno)
			r.Errno = int64(errno)
		}
		if _, err := parent.Write(signal[:]); err != nil {
			return
		}
	}
}

// answer carries out a request.
func (r *sharedRead) answer() (n int, err error) {
	if r.Thread == 0 {
		file, err := os.Open(string(r.File[:r.Ranges]))
		if err != nil {
			return 0, err
		}
		defer file.Close()
		return file.Read(r.Data[:])
	}
	local := []unix.Iovec{{Base: &r.Data[0]}}
	local[0].SetLen(len(r.Data))
	return readThread(int(r.Thread), local, r.Remote[:r.Ranges])
}
