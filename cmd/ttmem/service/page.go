package service

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"

	"ttmem/aggregate"
	clock "ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/web"
	"ttmem/tracer/event"
	tracing "ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// maxPageEvents is the largest number of events of a page, so that it takes 50 MB at most beside the live
// buffers.
const maxPageEvents = 300_000

// page sends the page of `ttmem html` for the newest events. It is for viewers who see everything.
func (s *Server) page(w http.ResponseWriter, r *http.Request, v Viewer) {
	if !v.All {
		askForToken(w, r)
		return
	}
	s.await(r.Context())
	w.Header().Set("X-Frame-Options", "DENY")
	s.send(w, r, v, s.answers, "text/html; charset=utf-8", func(to *bytes.Buffer) error {
		past, err := s.hub.Past(r.Context(), v, maxPageEvents)
		if err != nil {
			return err
		}
		return s.hub.encoding.during(r.Context(), clientOf(r.Context(), v), func() error { return s.writePage(to, past, maxPageEvents) })
	})
}

// writePage writes the page of the newest events of a recording.
func (s *Server) writePage(to io.Writer, past recording.Excerpt, most uint64) error {
	r, err := recording.NewReader(&past.Data)
	if err != nil {
		return err
	}
	p, state := web.New(), aggregate.New()
	var from func(*event.Event) bool
	if before := past.Events - min(past.Events, most); before > 0 {
		seen := uint64(0)
		from = func(*event.Event) bool { seen++; return seen > before }
	}
	handle := p.Play(state, from)
	var e event.Event
	for err == nil {
		if err = r.Next(&e); err == nil {
			handle(&e)
		}
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	now := tracing.Now()
	state.Advance(now)
	if state.SettleUntil(now); state.Number() == 0 {
		p.Begin(state)
	}
	o := web.Options{Of: "this host", Clock: clock.NewClock(time.Now(), now), Live: true}
	if s.o.Documents != nil {
		if o.Documents, err = s.o.Documents(state); err != nil {
			return err
		}
	}
	return p.Write(to, state, o)
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
