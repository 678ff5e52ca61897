package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// maxOwnerPIDs bounds the processes of a request.
	maxOwnerPIDs = 64
	// ownersPatience is how long a request waits. Owners that are found later are reported as events.
	ownersPatience = 15 * time.Second
)

// owners searches the owners of the buffers of the viewer's processes, and answers when the hub has them.
func (s *Server) owners(w http.ResponseWriter, r *http.Request, v Viewer) {
	if v == Nobody || v == TokenHolder {
		http.Error(w, "ttmem: owners are searched over the unix socket only, which identifies the user", http.StatusForbidden)
		return
	}
	pids, err := pidsIn(r.URL.RawQuery)
	if err != nil {
		http.Error(w, "ttmem: "+err.Error(), http.StatusBadRequest)
		return
	}
	if !v.All {
		own := s.hub.processesOf(v.UID)
		for _, pid := range pids {
			if !slices.Contains(own, pid) {
				http.Error(w, fmt.Sprintf("ttmem: PID %d is not a traced process of yours", pid), http.StatusForbidden)
				return
			}
		}
		if len(pids) == 0 {
			pids = own
		}
	}
	if s.o.Owners == nil || !v.All && len(pids) == 0 {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	c := clientOf(r.Context(), v)
	if !s.looks.take(r.Context(), w, c) {
		return
	}
	defer s.looks.release(c)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(ownersPatience + writeTimeout))
	ctx, done := context.WithTimeout(r.Context(), ownersPatience)
	defer done()
	err = s.o.Owners(ctx, pids, !v.All)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		err = errors.New("the search is still running: try again later")
	}
	if err != nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "ttmem: owners of buffers: "+err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// ownersAt are the values of /v1/stream?owners=WHEN: at new peaks, and also at marks.
var ownersAt = []string{"peaks", "marks"}

// searchDuring returns a function that begins the searches that a stream asks for, of the viewer's processes, and returns
// one that ends them. It returns false if the request is refused.
func (s *Server) searchDuring(w http.ResponseWriter, r *http.Request, v Viewer) (begin func() (end func()), ok bool) {
	at := r.URL.Query().Get("owners")
	switch {
	case at == "":
		return func() func() { return func() {} }, true
	case !slices.Contains(ownersAt, at):
		http.Error(w, "ttmem: owners are searched at peaks or marks: GET /v1/stream?owners=peaks", http.StatusBadRequest)
	case v == Nobody || v == TokenHolder || s.o.SearchFor == nil:
		http.Error(w, "ttmem: owners are searched over the unix socket only, which identifies the user", http.StatusForbidden)
	default:
		return func() func() { return s.o.SearchFor(v.UID, at == "marks") }, true
	}
	return nil, false
}

// pidsIn returns the process ids in a query.
func pidsIn(query string) (pids []int, err error) {
	values, err := url.ParseQuery(query)
	if err != nil || len(values["pid"]) > maxOwnerPIDs || len(values) > 1 || len(values) == 1 && values["pid"] == nil {
		return nil, fmt.Errorf("name up to %d processes: POST /v1/owners?pid=PID", maxOwnerPIDs)
	}
	for _, text := range values["pid"] {
		pid, err := strconv.Atoi(text)
		if err != nil || pid <= 0 {
			return nil, errors.New("a pid is a number: POST /v1/owners?pid=PID")
		}
		pids = append(pids, pid)
	}
	return pids, nil
}
