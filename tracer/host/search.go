package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"
)

// Thread returns a thread of the process that has not ended, if there is one.
func (p ReadableProcess) Thread() (int, error) { return strconv.Atoi(filepath.Base(p.dir)) }

// ErrTooLong means that the answer of a child is longer than it may be.
var ErrTooLong = errors.New("the answer of a child process is too long")

// Search runs this program under a name, as a child that reads the memory of the process. The
// child has the files, from descriptor 3 on. It reads a question from its standard input, which
// stays open until the answer is complete, and writes an answer of up to limit bytes to its standard
// output. It is left behind if it writes nothing for as long as patience says: until it ends it counts
// for the user of the process, as reads do.
func (p ReadableProcess) Search(ctx context.Context, name string, files []*os.File, question []byte, patience time.Duration, limit int64) (answer []byte, err error) {
	if err := p.readers.share(ctx, p.User, patience); err != nil {
		return nil, err
	}
	child, in, out, err := startSearch(name, files)
	if err != nil {
		p.readers.release(p.User)
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	defer func() {
		in.Close()
		out.Close()
		go func() { // it may wait for a page for ever
			_ = child.Process.Kill()
			_ = child.Wait() // it was killed, or has said all
			p.readers.release(p.User)
		}()
	}()
	wait := func() {
		_, _ = in.SetWriteDeadline(time.Now().Add(patience)), out.SetReadDeadline(time.Now().Add(patience))
	}
	wait()
	stop := context.AfterFunc(ctx, func() {
		_, _ = in.SetWriteDeadline(time.Unix(1, 0)), out.SetReadDeadline(time.Unix(1, 0))
	})
	_, err = in.Write(question)
	for part := make([]byte, 64<<10); err == nil && int64(len(answer)) <= limit && ctx.Err() == nil; {
		var n int
		wait()
		n, err = out.Read(part)
		answer = append(answer, part[:n]...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	switch {
	case !stop() || ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, ErrNoAnswer
	case err != nil:
		return nil, fmt.Errorf("asking %s: %w", name, err)
	case int64(len(answer)) > limit:
		return nil, ErrTooLong
	}
	return answer, nil
}

// startSearch starts a child with pipes that have deadlines.
func startSearch(name string, files []*os.File) (child *exec.Cmd, in, out *os.File, err error) {
	theirIn, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer theirIn.Close()
	out, theirOut, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, nil, nil, err
	}
	defer theirOut.Close()
	child = newChild(files, name)
	child.Env = append(child.Env, "GOGC=20")
	child.Stdin, child.Stdout = theirIn, theirOut
	if err := startChild(child.Start); err != nil {
		in.Close()
		out.Close()
		return nil, nil, nil, err
	}
	return child, in, out, nil
}
