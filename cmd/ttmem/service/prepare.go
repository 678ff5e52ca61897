package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"time"
)

// preparePatience is how long a client waits.
const preparePatience = 10 * time.Second

// prepare prepares for what a client is about to start: for its process (pid), or for a file that the client has opened
// (fd), a library or one beside it, before a process maps it.
func (s *Server) prepare(w http.ResponseWriter, r *http.Request, v Viewer) {
	of, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || of.tcp != nil || s.o.PrepareFile == nil {
		http.Error(w, "ttmem: only clients of the unix socket start commands here", http.StatusForbidden)
		return
	}
	query, do := r.URL.Query(), s.o.PrepareFile
	number := query.Get("fd")
	if query.Has("pid") {
		number = query.Get("pid")
		do = func(_ context.Context, client, pid int) error { return s.o.PrepareCommand(pid, client) }
	}
	n, err := strconv.ParseUint(number, 10, 31)
	if err != nil || query.Has("pid") == query.Has("fd") {
		http.Error(w, "ttmem: POST /v1/prepare has pid=N, a child of the client, or fd=N, an open file of the client", http.StatusBadRequest)
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
	if err := do(ctx, int(cred.Pid), int(n)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("the file is not read yet")
		}
		http.Error(w, "ttmem: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// PrepareFile asks the service to prepare for a file before a process maps it, and returns when that is done.
func (c *Client) PrepareFile(ctx context.Context, file *os.File) error {
	return c.prepare(ctx, fmt.Sprintf("fd=%d", file.Fd()))
}

// PrepareCommand asks the service to prepare for a process that this one has started, before it executes its program.
func (c *Client) PrepareCommand(ctx context.Context, pid int) error {
	return c.prepare(ctx, fmt.Sprintf("pid=%d", pid))
}

func (c *Client) prepare(ctx context.Context, what string) error {
	body, err := c.ask(ctx, http.MethodPost, "prepare?"+what)
	if err != nil {
		return err
	}
	return body.Close()
}
