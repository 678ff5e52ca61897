package record

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/host"
)

// PageChild is the name, os.Args[0], of a process that writes the page of a failed allocation: of
// the recording on standard input to standard output. Its arguments are the name of the recording,
// and the times of its first event and of the failure. A process of its own needs the memory and
// the time of a page, and not the privileges of the tracer.
const PageChild = "ttmem-page"

// The bounds of a page and of its process.
const (
	pageEvents  = 100_000 // before the failure
	pageMemory  = 512 << 20
	pageCPU     = 20 // seconds
	pageBytes   = 32 << 20
	pageTimeout = time.Minute // also of all pages together at the end of ttmem: its process may have to wait for a processor
	// ownersPatience is how long a page waits for the search for owners that a failure causes.
	ownersPatience = 5 * time.Second
)

// LimitPageChild sets the bounds in the process of a page.
func LimitPageChild() error {
	for resource, limit := range map[int]uint64{unix.RLIMIT_DATA: pageMemory, unix.RLIMIT_CPU: pageCPU, unix.RLIMIT_FSIZE: pageBytes} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	return nil
}

func pageName(recording string) string {
	return strings.TrimSuffix(recording, failureSuffix) + pageSuffix
}

// PageOf returns the page beside a kept recording; "" if there is none.
func PageOf(recording string) string {
	info, err := os.Lstat(pageName(recording))
	if !strings.HasSuffix(recording, failureSuffix) || err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return pageName(recording)
}

// A makingPage is a page that a child process writes.
type makingPage struct {
	child *exec.Cmd
	done  chan error
	path  string
}

// makePages makes a page of a recording that needs one, at most one for each user in keepInterval.
// One is made at a time. At the end nothing waits.
func (b *BlackBox) makePages(atEnd bool) {
	if b.making != nil {
		select {
		case err := <-b.making.done:
			b.madePage(err)
		default:
			return
		}
	}
	for _, k := range b.kept {
		if k.page == nil || !atEnd && (time.Since(k.paged) < keepInterval || time.Since(k.page.seen) < ownersPatience) {
			continue
		}
		f := k.page
		k.page, k.paged = nil, time.Now()
		niceness := host.LowestPriority
		if atEnd {
			niceness = ownNiceness // it is waited for
		}
		if err := b.makePage(k.name, f, niceness); err != nil {
			b.madePage(err)
		}
		return
	}
}

// makePage starts to make the page of a recording.
func (b *BlackBox) makePage(name string, f *failure, niceness int) error {
	b.making = &makingPage{done: make(chan error, 1), path: filepath.Join(b.path, pageName(name))}
	in, err := b.folder.Open(name)
	if err != nil {
		return err
	}
	out, err := output.CreateAt("--crash-dir", b.at(pageName(name)))
	if err != nil {
		in.Close()
		return err
	}
	out.Private = true
	var said bytes.Buffer
	c := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{PageChild, name, strconv.FormatUint(f.fromNs, 10), strconv.FormatUint(f.TimeNs, 10)},
		Env: []string{"GOMAXPROCS=1", fmt.Sprintf("GOMEMLIMIT=%d", pageMemory/2)}, Dir: "/",
		// through a pipe: without capabilities it may not be able to open the file of another user
		Stdin: struct{ io.Reader }{in}, Stdout: out.W, Stderr: &said,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // a terminal's signals are for the parent
	}
	if err = host.StartUnprivileged(niceness, c.Start); err != nil {
		in.Close()
		out.Discard()
		return err
	}
	b.making.child = c
	timeout := time.AfterFunc(pageTimeout, func() { _ = c.Process.Kill() })
	go func(done chan<- error) {
		defer in.Close()
		err := c.Wait()
		timeout.Stop()
		if said.Len() > 0 && err != nil {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(said.Bytes()[:min(said.Len(), 200)]))
		}
		done <- out.Finish(err)
	}(b.making.done)
	return nil
}

// ownNiceness is that with which this process began, as with nice(1): a child may have no lower one. Later its
// first thread may have another one, with raised priority.
var ownNiceness = func() int {
	const zero = 20 // as the system call returns it
	n, err := unix.Getpriority(unix.PRIO_PROCESS, os.Getpid())
	if err != nil {
		return 0
	}
	return zero - n
}()

// madePage ends the page that was being made.
func (b *BlackBox) madePage(err error) {
	path := b.making.path
	b.making = nil
	if err != nil {
		term.Warn(fmt.Sprintf("no page %s: %v", path, host.WithoutPath(err)))
		return
	}
	if _, err := b.folder.Lstat(strings.TrimSuffix(filepath.Base(path), pageSuffix) + failureSuffix); err != nil { // removed meanwhile
		_ = b.folder.Remove(filepath.Base(path))
		return
	}
	term.Warn(fmt.Sprintf("%s shows it in a browser", path))
	b.makeRoom()
}

// finishPages makes the pages that are missing, and ends what takes too long.
func (b *BlackBox) finishPages() {
	if b.making != nil && b.making.child != nil { // with the lowest priority, a busy host runs it too late
		_ = unix.Setpriority(unix.PRIO_PGRP, b.making.child.Process.Pid, ownNiceness)
	}
	defer term.While("ttmem: writing the pages of failed allocations")()
	patience := time.After(pageTimeout)
	for b.makePages(true); b.making != nil; b.makePages(true) {
		select {
		case err := <-b.making.done:
			b.madePage(err)
		case <-patience:
			_ = b.making.child.Process.Kill()
			b.madePage(<-b.making.done)
			return
		}
	}
}

// removeUnfinished removes pages that a killed ttmem left.
func (b *BlackBox) removeUnfinished() {
	left, _ := fs.Glob(b.folder.FS(), "."+failurePrefix+"*.tmp")
	for _, name := range left {
		_ = b.folder.Remove(name)
	}
}
