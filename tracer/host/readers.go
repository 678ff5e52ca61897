package host

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A page of a process may be on a file system of its user's own that never answers. Linux lets
// nobody kill the thread that waits for such a page, nor end the process that the thread belongs
// to. So processes are read by child processes, which can be left behind.

const (
	// readPatience is how long a read may take.
	readPatience = 2 * time.Second
	// readersPerUser bounds the reads at a time from the processes of a user, those included
	// that were given up and have not returned, and maxReaders those of all users.
	readersPerUser, maxReaders = 4, 64
	// idleReaders is how many children wait for work.
	idleReaders = 4
)

// ErrNoAnswer means that a read was given up.
var ErrNoAnswer = errors.New("its memory does not answer")

// Range is a part of a process's memory.
type Range struct {
	Address uint64
	Bytes   int
}

// readRequest asks for a file, or for memory that a thread sees.
type readRequest struct {
	File   string
	Thread int
	Ranges []Range
}

type readAnswer struct {
	Errno unix.Errno
	Data  []byte
}

// Readers read files of /proc/PID and memory that may not answer.
type Readers struct {
	mu     sync.Mutex
	idle   []*reader
	busy   map[int]int // by real user id
	total  int
	freed  chan struct{} // closed when a reader is free
	closed bool
}

// NewReaders returns Readers, and starts a first child.
func NewReaders() *Readers {
	r := &Readers{busy: make(map[int]int), freed: make(chan struct{})}
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
	readers *Readers
	dir     string // of /proc
	user    int
}

// Of returns a process.
func (r *Readers) Of(pid int) ReadableProcess {
	return ReadableProcess{pid, r, ProcDir(pid), realUser(pid)}
}

// Memory reads up to the first range that cannot be read completely, and returns all of what
// it read. An error means that nothing was read.
func (p ReadableProcess) Memory(ctx context.Context, ranges ...Range) ([]byte, error) {
	thread, err := strconv.Atoi(filepath.Base(p.dir)) // the first one may have ended
	if err != nil {
		return nil, err
	}
	return p.read(ctx, readRequest{Thread: thread, Ranges: ranges})
}

// CommandLine returns the command line of a process, with blanks between the words; "" if it
// cannot be read.
func (p ReadableProcess) CommandLine(ctx context.Context) string {
	text, _ := p.read(ctx, readRequest{File: p.dir + "/cmdline"})
	return strings.TrimSpace(strings.ReplaceAll(string(text), "\x00", " "))
}

func (p ReadableProcess) read(ctx context.Context, request readRequest) ([]byte, error) {
	r := p.readers
	one, err := r.acquire(ctx, p.user)
	if err != nil {
		return nil, err
	}
	answer, err := one.ask(ctx, request)
	if err != nil {
		go func() {
			one.end()
			r.release(p.user)
		}()
		return nil, err
	}
	r.keep(one)
	r.release(p.user)
	if answer.Errno != 0 {
		return nil, answer.Errno
	}
	return answer.Data, nil
}

// acquire returns a reader for a process of a user. It waits for other reads of that user.
func (r *Readers) acquire(ctx context.Context, user int) (one *reader, err error) {
	patience := time.After(readPatience)
	for {
		r.mu.Lock()
		free := r.busy[user] < readersPerUser && r.total < maxReaders
		if free {
			r.busy[user]++
			r.total++
			if last := len(r.idle) - 1; last >= 0 {
				one, r.idle = r.idle[last], r.idle[:last]
			}
		}
		freed := r.freed
		r.mu.Unlock()
		if free {
			break
		}
		select {
		case <-freed:
		case <-patience:
			return nil, ErrNoAnswer
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if one == nil {
		if one, err = startReader(); err != nil {
			r.release(user)
		}
	}
	return one, err
}

// release ends a read of a user's process.
func (r *Readers) release(user int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total--
	if r.busy[user]--; r.busy[user] == 0 {
		delete(r.busy, user)
	}
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
	child   *exec.Cmd
	conn    *os.File
	encoder *gob.Encoder
	decoder *gob.Decoder
}

// readerName is the name under which a program runs as a reader of its parent's.
const readerName = "ttmem-reader"

func init() {
	if len(os.Args) == 1 && os.Args[0] == readerName {
		answerReads(os.NewFile(3, "parent"))
		os.Exit(0)
	}
}

func startReader() (*reader, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	own, theirs := os.NewFile(uintptr(pair[0]), "reader"), os.NewFile(uintptr(pair[1]), "parent")
	defer theirs.Close()
	child := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{readerName}, Env: []string{"GOMAXPROCS=1"}, Dir: "/",
		ExtraFiles:  []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // a terminal's signals are for the parent
	}
	if err := child.Start(); err != nil {
		own.Close()
		return nil, fmt.Errorf("starting a reader: %w", err)
	}
	return &reader{child, own, gob.NewEncoder(own), gob.NewDecoder(own)}, nil
}

// ask returns the answer to a request. After an error the reader is of no more use.
func (one *reader) ask(ctx context.Context, request readRequest) (answer readAnswer, err error) {
	_ = one.conn.SetDeadline(time.Now().Add(readPatience))
	stop := context.AfterFunc(ctx, func() { _ = one.conn.SetDeadline(time.Unix(1, 0)) })
	if err = one.encoder.Encode(request); err == nil {
		err = one.decoder.Decode(&answer)
	}
	switch {
	case !stop():
		err = context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = ErrNoAnswer
	case err != nil:
		err = fmt.Errorf("asking a reader: %w", err)
	}
	return answer, err
}

// end returns when the child has ended, which may be never.
func (one *reader) end() {
	one.conn.Close()
	_ = one.child.Process.Kill()
	_ = one.child.Wait() // it was killed
}

// answerReads is what a reader does until its parent has ended.
func answerReads(parent *os.File) {
	RaisePriority()
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(readerName+"\x00"))), 0, 0, 0)
	encoder, decoder := gob.NewEncoder(parent), gob.NewDecoder(parent)
	for {
		var request readRequest
		if decoder.Decode(&request) != nil {
			return
		}
		var answer readAnswer
		var err error
		if request.File != "" {
			answer.Data, err = os.ReadFile(request.File)
		} else {
			answer.Data, err = readRanges(request.Thread, request.Ranges)
		}
		if err != nil && !errors.As(err, &answer.Errno) {
			answer.Errno = unix.EIO
		}
		if encoder.Encode(answer) != nil {
			return
		}
	}
}

// readRanges reads memory that a thread sees.
func readRanges(thread int, ranges []Range) ([]byte, error) {
	total := 0
	remote := make([]unix.RemoteIovec, len(ranges))
	for i, r := range ranges {
		remote[i] = unix.RemoteIovec{Base: uintptr(r.Address), Len: r.Bytes}
		total += r.Bytes
	}
	data := make([]byte, total)
	local := []unix.Iovec{{Base: unsafe.SliceData(data)}}
	local[0].SetLen(total)
	n, err := unix.ProcessVMReadv(thread, local, remote, 0)
	if errors.Is(err, unix.EFAULT) {
		err = nil // the first range cannot be read
	}
	return data[:max(n, 0)], err
}

// realUser returns the user id of who started a process.
func realUser(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if ids := statusOf(string(text), "Uid"); len(ids) > 0 {
		id, _ := strconv.Atoi(ids[0])
		return id
	}
	return 0
}
