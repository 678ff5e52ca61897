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

// libraryPatience is how long a client waits.
const libraryPatience = 10 * time.Second

// library prepares for a file that the client has opened, a library or one beside it, before a process maps it: the client
// is about to start one.
func (s *Server) library(w http.ResponseWriter, r *http.Request, v Viewer) {
	of, ok := r.Context().Value(connKey{}).(*conn)
	if !ok || of.tcp != nil || s.o.Library == nil {
		http.Error(w, "ttmem: libraries are attached to for clients of the unix socket only, whose files are open", http.StatusForbidden)
		return
	}
	fd, err := strconv.ParseUint(r.URL.Query().Get("fd"), 10, 31)
	if err != nil {
		http.Error(w, "ttmem: POST /v1/library?fd=N has a file descriptor of the client", http.StatusBadRequest)
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
	ctx, done := context.WithTimeout(r.Context(), libraryPatience)
	defer done()
	if err := s.o.Library(ctx, int(cred.Pid), int(fd)); err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = errors.New("the file is not read yet")
		}
		http.Error(w, "ttmem: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Prepare asks the service to prepare for a file before a process maps it, and returns when that is done.
func (c *Client) Prepare(ctx context.Context, file *os.File) error {
	body, err := c.ask(ctx, http.MethodPost, fmt.Sprintf("library?fd=%d", file.Fd()))
	if err != nil {
		return err
	}
	return body.Close()
}
