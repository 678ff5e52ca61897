package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"ttmem/aggregate"
	clock "ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/web"
	"ttmem/tracer/event"
	tracing "ttmem/tracer/host"
	"ttmem/tracer/recording"
)

const (
	// pageIdle is how long events are collected after the last request for a page.
	pageIdle = time.Minute
	// maxPageEvents is the largest number of events of a page. It then begins anew with the
	// live buffers, so that a page takes 50 MB at most beside them.
	maxPageEvents = 300_000
	// pagePatience is how long the first request waits for the present state. Millions of live buffers
	// take seconds.
	pagePatience = 20 * time.Second
)

// A livePage is the page of a viewer: it has the state when it was first requested, and the events
// since then.
type livePage struct {
	stop  context.CancelFunc
	idle  *time.Timer // calls stop
	begun chan struct{}

	mu    sync.Mutex
	page  *web.Page
	state *aggregate.State
	// handle takes an event, after those that it implies.
	handle func(*event.Event)
}

// page sends the page of `ttmem html` for the events since the viewer's first request. It is for
// viewers who see everything: root and token holders have one each, and a page for each user would
// take too much memory.
func (s *Server) page(w http.ResponseWriter, r *http.Request, v Viewer) {
	if !v.All {
		askForToken(w, r)
		return
	}
	p, tooMany := s.pageOf(v)
	if tooMany != "" {
		busy(w, tooMany)
		return
	}
	select {
	case <-p.begun:
	case <-r.Context().Done():
		return
	case <-time.After(pagePatience):
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		busy(w, "the page is not ready: its live buffers are still being read: try again later")
		return
	}
	w.Header().Set("X-Frame-Options", "DENY")
	s.send(w, r, v, s.answers, "text/html; charset=utf-8", func(to *bytes.Buffer) error {
		return s.hub.encoding.during(r.Context(), clientOf(r.Context(), v), func() error { return p.write(to, s.o.Documents) })
	})
}

// askForToken makes a browser ask for the token, as a password.
func askForToken(w http.ResponseWriter, r *http.Request) {
	if c, ok := r.Context().Value(connKey{}).(*conn); !ok || c.tcp == nil || c.tcp.secret == nil {
		http.Error(w, "ttmem: the page shows all processes: it is for root, and for clients with the token of --token-file", http.StatusForbidden)
		return
	}
	w.Header().Set("WWW-Authenticate", basicAuth)
	http.Error(w, "ttmem: the page shows all processes: give the token as the password, with any user name", http.StatusUnauthorized)
}

// pageOf returns the page of a viewer, and begins it if there is none and there are not too many streams.
func (s *Server) pageOf(v Viewer) (_ *livePage, tooMany string) {
	s.pagesMu.Lock()
	defer s.pagesMu.Unlock()
	if p := s.pages[v]; p != nil && p.idle.Reset(pageIdle) {
		return p, ""
	}
	c := client{uid: v.UID} // of the page: several clients may look at it
	if tooMany := s.streams.acquire(c); tooMany != "" {
		return nil, tooMany
	}
	ctx, stop := context.WithCancel(context.Background())
	p := &livePage{stop: stop, idle: time.AfterFunc(pageIdle, stop), begun: make(chan struct{})}
	if s.pages == nil {
		s.pages = make(map[Viewer]*livePage)
	}
	s.pages[v] = p
	go func() {
		p.follow(ctx, s.hub, v)
		p.idle.Stop()
		s.streams.release(c)
		s.pagesMu.Lock()
		defer s.pagesMu.Unlock()
		if s.pages[v] == p {
			delete(s.pages, v)
		}
	}()
	return p, ""
}

// follow takes the viewer's events until the context is done, or the hub ends.
func (p *livePage) follow(ctx context.Context, hub *Hub, v Viewer) {
	defer p.stop()
	from, to := io.Pipe()
	defer from.Close()
	go func() { to.CloseWithError(errors.Join(hub.Follow(ctx, v, to), io.EOF)) }()
	r, err := recording.NewReader(from)
	if err != nil {
		return
	}
	var e event.Event
	for r.Next(&e) == nil {
		p.apply(&e)
	}
}

func (p *livePage) apply(e *event.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == nil {
		p.page, p.state = web.New(), aggregate.New()
		p.handle = p.state.Completed(func(e *event.Event) { p.page.Event(e, p.state) })
		defer close(p.begun)
	}
	if e.Kind == event.Checkpoint { // it may be from long ago
		p.state.Apply(e)
		p.state.Advance(tracing.Now())
		p.page.Begin(p.state)
		return
	}
	if p.page.Events() > maxPageEvents {
		p.page = web.New()
		p.state.RestartPeaks()
		p.state.RestartOperations()
		p.page.Begin(p.state)
	}
	p.handle(e)
}

func (p *livePage) write(w io.Writer, documents func(*aggregate.State) (map[string]json.RawMessage, error)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := web.Options{Of: "this host", Clock: clock.NewClock(time.Now(), tracing.Now()), Live: true}
	if documents != nil {
		var err error
		if o.Documents, err = documents(p.state); err != nil {
			return err
		}
	}
	return p.page.Write(w, p.state, o)
}
