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

// libraryPatience is how long a client waits for a library to be attached to.
const libraryPatience = 10 * time.Second

// library attaches to a library that the client has opened, before a process maps it: the client is about to start one.
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
			err = errors.New("the library is not attached to yet")
		}
		http.Error(w, "ttmem: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// Attach asks the service to attach to a library before a process maps it, and returns when that is done.
func (c *Client) Attach(ctx context.Context, library *os.File) error {
	body, err := c.ask(ctx, http.MethodPost, fmt.Sprintf("library?fd=%d", library.Fd()))
	if err != nil {
		return err
	}
	return body.Close()
}
