package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"time"
)

// preparePatience is how long a client waits.
const preparePatience = 10 * time.Second

// prepare prepares for what a client is about to start: for its process (pid), which may run a CPython that the client has
// opened (fd), or for a file that the client has opened, a library or one beside it, before a process maps it.
func (s *Server) prepare(w http.ResponseWriter, r *http.Request, v Viewer) {
	of, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || of.tcp != nil || s.o.PrepareFile == nil {
		http.Error(w, "ttmem: only clients of the unix socket start commands here", http.StatusForbidden)
		return
	}
	pid, ok1 := number(r, "pid")
	fd, ok2 := number(r, "fd")
	if !ok1 || !ok2 || pid < 0 && fd < 0 {
		http.Error(w, "ttmem: POST /v1/prepare has pid=N, a child of the client, or fd=N, an open file of the client, or both", http.StatusBadRequest)
		return
	}
	cred, err := peer(of.Conn)
	if err != nil {
		http.Error(w, "ttmem: the client is not known", http.StatusForbidden)
		return
	}
	c := clientOf(r.Context(), v)
	if !s.looks.take(r.Context(), w, c) {
		return
	}
	defer s.looks.release(c)
	ctx, done := context.WithTimeout(r.Context(), preparePatience)
	defer done()
	if pid >= 0 {
		err = s.o.PrepareCommand(ctx, pid, int(cred.Pid), fd)
	} else {
		err = s.o.PrepareFile(ctx, int(cred.Pid), fd)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		http.Error(w, "ttmem: "+err.Error(), http.StatusForbidden)
		return
	case errors.Is(err, context.DeadlineExceeded):
		err = errors.New("the file is not read yet")
		fallthrough
	case err != nil:
		http.Error(w, "ttmem: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// number returns a number that a request may have; -1 if it does not.
func number(r *http.Request, name string) (n int, ok bool) {
	query := r.URL.Query()
	if !query.Has(name) {
		return -1, true
	}
	parsed, err := strconv.ParseUint(query.Get(name), 10, 31)
	return int(parsed), err == nil
}

// PrepareFile asks the service to prepare for a file before a process maps it, and returns when that is done.
func (c *Client) PrepareFile(ctx context.Context, file *os.File) error {
	return c.prepare(ctx, fmt.Sprintf("fd=%d", file.Fd()))
}

// PrepareCommand asks the service to prepare for a process that this one has started, before it executes its program, and
// for the CPython that it will run, unless that is nil.
func (c *Client) PrepareCommand(ctx context.Context, pid int, python *os.File) error {
	what := fmt.Sprintf("pid=%d", pid)
	if python != nil {
		what += fmt.Sprintf("&fd=%d", python.Fd())
	}
	return c.prepare(ctx, what)
}

func (c *Client) prepare(ctx context.Context, what string) error {
	body, err := c.ask(ctx, http.MethodPost, "prepare?"+what)
	if err != nil {
		return err
	}
	return body.Close()
}
