package service

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"
)

// looks are the searches that a server asked for.
type looks struct {
	mu   sync.Mutex
	list []string
	err  error
}

func (l *looks) find(_ context.Context, pids []int, counts bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	pids = slices.Sorted(slices.Values(pids))
	l.list = append(l.list, fmt.Sprint(pids, " ", counts))
	return l.err
}

// ownersAs is the answer to a viewer's request.
func ownersAs(s *Server, v Viewer, query string) (status int, body string) {
	r, _ := http.NewRequest(http.MethodPost, "/v1/owners"+query, nil)
	w := &answerOf{header: make(http.Header), status: http.StatusOK}
	s.owners(w, r, v)
	return w.status, w.body.String()
}

// answerOf takes the answer to a request.
type answerOf struct {
	header http.Header
	status int
	body   strings.Builder
}

func (a *answerOf) Header() http.Header         { return a.header }
func (a *answerOf) WriteHeader(status int)      { a.status = status }
func (a *answerOf) Write(b []byte) (int, error) { return a.body.Write(b) }

// TestOwnersAreOfOnesOwnProcesses: root may ask for all.
func TestOwnersAreOfOnesOwnProcesses(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	host.start(11, 1000)
	host.start(20, 2000)
	var l looks
	s := NewServer(host.hub, Options{Owners: l.find})
	for _, c := range []struct {
		viewer Viewer
		query  string
		status int
		looked string
	}{
		{Viewer{UID: 1000}, "?pid=10", http.StatusNoContent, "[10] true"},
		{Viewer{UID: 1000}, "?pid=10&pid=11", http.StatusNoContent, "[10 11] true"},
		{Viewer{UID: 1000}, "", http.StatusNoContent, "[10 11] true"},
		{Viewer{UID: 1000}, "?pid=20", http.StatusForbidden, ""},
		{Viewer{UID: 1000}, "?pid=10&pid=20", http.StatusForbidden, ""},
		{Viewer{UID: 1000}, "?pid=30", http.StatusForbidden, ""}, // as for one of another user
		{Viewer{UID: 3000}, "", http.StatusNoContent, ""},
		{root, "?pid=20", http.StatusNoContent, "[20] false"},
		{root, "", http.StatusNoContent, "[] false"},
		{Nobody, "", http.StatusForbidden, ""},
		{TokenHolder, "?pid=10", http.StatusForbidden, ""},
		{root, "?pid=x", http.StatusBadRequest, ""},
		{root, "?pid=0", http.StatusBadRequest, ""},
		{root, "?pid=99999999999999999999", http.StatusBadRequest, ""},
		{root, "?uid=1", http.StatusBadRequest, ""},
		{root, "?pid=1;2", http.StatusBadRequest, ""},
		{root, "?" + strings.Repeat("pid=1&", maxOwnerPIDs+1), http.StatusBadRequest, ""},
	} {
		l.list = nil
		status, body := ownersAs(s, c.viewer, c.query)
		qt.Check(t, qt.Equals(status, c.status), qt.Commentf("%v %s: %s", c.viewer, c.query, body))
		qt.Check(t, qt.Equals(strings.Join(l.list, ","), c.looked), qt.Commentf("%v %s", c.viewer, c.query))
	}
}

// TestSearchesAtOnceAreBounded: a user's requests wait for a search, and each holds a connection.
func TestSearchesAtOnceAreBounded(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	begun, end := make(chan struct{}), make(chan struct{})
	s := NewServer(host.hub, Options{Owners: func(context.Context, []int, bool) error {
		begun <- struct{}{}
		<-end
		return nil
	}})
	var done sync.WaitGroup
	for range maxLooksPerUser {
		done.Go(func() { ownersAs(s, Viewer{UID: 1000}, "") })
		<-begun
	}
	status, _ := ownersAs(s, Viewer{UID: 1000}, "")
	qt.Check(t, qt.Equals(status, http.StatusServiceUnavailable))
	close(end)
	done.Wait()
}

func TestAClientAsksForOwners(t *testing.T) {
	var l looks
	path, _ := serveWith(t, testHub().hub, Options{Owners: l.find})
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	qt.Check(t, qt.IsNil(c.FindOwners(t.Context(), []int{10})))
	qt.Check(t, qt.DeepEquals(l.list, []string{fmt.Sprint("[10] ", os.Getuid() != 0)}))
	for err, want := range map[error]string{
		errors.New("too often"):  "the ttmem service at .*: owners of buffers: too often",
		context.DeadlineExceeded: "the ttmem service at .*: owners of buffers: the search is still running: try again later",
	} {
		l.err = err
		qt.Check(t, qt.ErrorMatches(c.FindOwners(t.Context(), nil), want))
	}
	qt.Check(t, qt.IsFalse(c.SearchesAt("peaks")))
	answer := talk(t, path, "GET /v1/owners HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	qt.Check(t, qt.StringContains(answer, "405 Method Not Allowed"))
}

// TestAStreamHasOwnersSearched: those of its user, while it is open.
func TestAStreamHasOwnersSearched(t *testing.T) {
	asked := make(chan string, 2)
	path, _ := serveWith(t, testHub().hub, Options{SearchFor: func(uid int, marks bool) func() {
		asked <- fmt.Sprint(uid, marks)
		return func() { asked <- "end" }
	}})
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	for at, marks := range map[string]bool{"peaks": false, "marks": true} {
		qt.Check(t, qt.IsTrue(c.SearchesAt(at)))
		ctx, end := context.WithCancel(t.Context())
		_, err := c.StreamWithOwners(ctx, at)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(<-asked, fmt.Sprint(os.Getuid(), marks)))
		end()
		qt.Check(t, qt.Equals(<-asked, "end"))
	}
	_, err = c.StreamWithOwners(t.Context(), "always")
	qt.Check(t, qt.ErrorMatches(err, "the ttmem service at .*: owners are searched at peaks or marks: GET /v1/stream.owners=peaks"))
	ctx, end := context.WithCancel(t.Context())
	defer end()
	_, err = c.StreamWithOwners(ctx, "")
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(asked, 0))
}

// TestOwnersOfAStreamNeedAUser: the token shows all users' processes, and is nobody.
func TestOwnersOfAStreamNeedAUser(t *testing.T) {
	s := NewServer(testHub().hub, Options{SearchFor: func(int, bool) func() { return func() {} }})
	for v, status := range map[Viewer]int{{UID: 1000}: http.StatusOK, root: http.StatusOK, Nobody: http.StatusForbidden, TokenHolder: http.StatusForbidden} {
		r, _ := http.NewRequest(http.MethodGet, "/v1/stream?owners=peaks", nil)
		w := &answerOf{header: make(http.Header), status: http.StatusOK}
		_, ok := s.searchDuring(w, r, v)
		qt.Check(t, qt.Equals(w.status, status))
		qt.Check(t, qt.Equals(ok, status == http.StatusOK))
	}
}
