package service

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/export/metrics"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/document"
)

// Limits for slow and frequent requests.
const (
	headerTimeout = 5 * time.Second  // for a request to come
	idleTimeout   = 60 * time.Second // between two requests
	writeTimeout  = 10 * time.Second // for the reader to take sent data
	maxHeader     = 4 << 10
	// Answers are made in memory; for a stream one goroutine encodes.
	maxAnswers, maxAnswersPerUser = 32, 4
	maxStreams, maxStreamsPerUser = 128, 16 // a stream for each `ttmem run` of a user
	maxLooks, maxLooksPerUser     = 32, 4
	forRoot                       = 8 // reserved for root, of each of the three
	// What a slow reader of the past has not read yet stays in memory.
	maxPasts, maxPastsPerUser, pastsForRoot = 4, 1, 1
)

// versionHeader is in every answer, and identifies ttmem.
const versionHeader = "Ttmem-Version"

// Options are the parts of a Server's reports that do not come from the Hub.
type Options struct {
	// Version is ttmem's.
	Version string
	// Stacks counts the stacks that were taken; nil if they are not counted.
	Stacks func() *memory.Stacks
	// Recording returns Health.Recording; nil if nothing is recorded.
	Recording func() string
	// Warn reports what an administrator should know; nil: to nobody.
	Warn func(string)
	// Mark sets a mark for the viewer, which counts to a sharer; nil if that is not possible.
	Mark func(name string, v Viewer, sharer int) error
	// Owners searches the owners of the buffers of these processes, or of all if the list is empty. It
	// returns when the hub has them, or the context is done. counts is true if the user of the
	// processes asked. nil: owners are not searched.
	Owners func(ctx context.Context, pids []int, counts bool) error
	// SearchFor searches the owners of a user's processes at new peaks and, with marks, at marks, too, until stop is
	// called. nil: owners are not searched then.
	SearchFor func(uid int, marks bool) (stop func())
	// HandledNs returns the time before which the hub has all events; nil: it is not told.
	HandledNs func() uint64
	// PrepareFile prepares for a file that a process has opened, and another will map. It returns when that is done, or the
	// context. nil, as PrepareCommand then: libraries and processes are discovered when a process maps one.
	PrepareFile func(ctx context.Context, pid, fd int) error
	// PrepareCommand prepares for a process that has not executed its program yet, a child of another, which may have the
	// CPython that it will run open by a descriptor. It returns when that is done, or the context.
	PrepareCommand func(ctx context.Context, pid, parent, fd int) error
	// Reading reports whether the existing memory of processes is still being read; nil: it never
	// is.
	Reading func() bool
	// Chip returns what the host knows about a chip; nil: nothing.
	Chip func(id int) metrics.Chip
	// Documents returns the documents on the page of a state; nil: the page has none.
	Documents func(*aggregate.State) (map[string]json.RawMessage, error)
}

// A Server answers requests about the hub's state.
type Server struct {
	hub     *Hub
	o       Options
	http    *http.Server
	started time.Time
	limit   *limiter
	answers *limiter
	streams *limiter
	looks   *limiter
	pasts   *limiter
	marks   rate
	costs   costs
	marked  atomic.Uint64 // accepted marks

	ending chan struct{} // closed at the end
	end    func()
}

// NewServer returns a server for the hub, which has no other server.
func NewServer(hub *Hub, o Options) *Server {
	hub.version = o.Version
	if o.Warn == nil {
		o.Warn = func(string) {}
	}
	s := &Server{
		hub: hub, o: o, started: time.Now(),
		limit:   newLimiter("connections", maxConnections, maxConnectionsPerUser, connectionsForRoot),
		answers: newLimiter("unread answers", maxAnswers, maxAnswersPerUser, forRoot),
		streams: newLimiter("streams", maxStreams, maxStreamsPerUser, forRoot),
		looks:   newLimiter("searches for owners", maxLooks, maxLooksPerUser, forRoot),
		pasts:   newLimiter("requests for the past", maxPasts, maxPastsPerUser, pastsForRoot),
	}
	s.ending = make(chan struct{})
	s.end = sync.OnceFunc(func() { close(s.ending) })
	s.http = &http.Server{
		Handler:                      s,
		ReadTimeout:                  headerTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		ConnContext:                  withConn,
		DisableGeneralOptionsHandler: true,
		// Errors of clients are not logged: they could fill the log.
		ErrorLog: log.New(io.Discard, "", 0),
	}
	return s
}

// ServeUnix answers on a socket until Close. Each user sees their own processes.
func (s *Server) ServeUnix(l *Socket) error {
	return s.serve(&listener{Listener: l.UnixListener, limit: s.limit})
}

func (s *Server) serve(l net.Listener) error {
	err := s.http.Serve(l)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// closeGrace is how long followers have to read the end of their stream.
const closeGrace = time.Second

// Close ends all followers, and closes all connections.
func (s *Server) Close() {
	s.end()
	s.hub.End()
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	_ = s.http.Shutdown(ctx)
	s.http.Close()
}

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set(versionHeader, s.o.Version)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if r.ContentLength != 0 { // -1 if its length is unknown
		w.Header().Set("Connection", "close") // without reading the body
		http.Error(w, "ttmem: a request has no body", http.StatusBadRequest)
		return
	}
	v, status, refusal := viewerOfRequest(r)
	if status != 0 {
		if status == http.StatusUnauthorized {
			w.Header()["Www-Authenticate"] = []string{"Bearer", basicAuth}
		}
		http.Error(w, "ttmem: "+refusal, status)
		return
	}
	method := http.MethodGet
	answer := map[string]func(http.ResponseWriter, *http.Request, Viewer){
		"/v1/snapshot": s.snapshot,
		"/v1/state":    s.state,
		"/v1/stream":   s.stream,
		"/v1/past":     s.past,
		"/v1/health":   s.health,
		"/metrics":     s.metrics,
		"/":            s.page,

		"/debug/pprof/device_memory":       s.profileInuse,
		"/debug/pprof/device_memory_alloc": s.profileAlloc,
	}[r.URL.Path]
	switch {
	case r.URL.Path == "/v1/mark" && s.o.Mark != nil:
		method, answer = http.MethodPost, s.mark
	case r.URL.Path == "/v1/owners":
		method, answer = http.MethodPost, s.owners
	case r.URL.Path == "/v1/prepare":
		method, answer = http.MethodPost, s.prepare
	}
	switch {
	case answer == nil:
		http.Error(w, "ttmem: no such path: use / in a browser, /v1/snapshot, /v1/state, /v1/stream, /v1/past, /v1/health or /metrics", http.StatusNotFound)
	case r.Method != method:
		w.Header().Set("Allow", method)
		http.Error(w, "ttmem: use "+method, http.StatusMethodNotAllowed)
	default:
		s.costs.during(clientOf(r.Context(), v), func() { answer(w, r, v) })
	}
}

func (s *Server) snapshot(w http.ResponseWriter, r *http.Request, v Viewer) {
	s.await(r.Context())
	s.answer(w, r, v, func() (any, error) {
		reading := s.reading()
		shared, err := s.hub.Snapshot(r.Context(), v)
		if err != nil {
			return nil, err
		}
		snapshot := *shared
		snapshot.Reading = reading
		if v.All && s.o.Stacks != nil {
			snapshot.Stacks = s.o.Stacks()
		}
		return &snapshot, nil
	})
}

func (s *Server) reading() bool { return s.o.Reading != nil && s.o.Reading() }

// readPatience is how long after its start a Server delays answers until existing memory has been
// read: an empty chip would be wrong. Later answers say that it is still being read.
const (
	readPatience = 900 * time.Millisecond
	readInterval = 50 * time.Millisecond
)

// awaitRead waits until the hub has the existing allocations, or patience or the context ends.
func (s *Server) awaitRead(ctx context.Context) {
	if poll(ctx, s.started.Add(readPatience), readInterval, func() bool { return !s.reading() }) {
		// events that were read from memory are delayed for a moment, to be in order with others
		time.Sleep(readInterval)
	}
}

// poll waits until done returns true, the time is over or the context ends, and reports whether
// it waited.
func poll(ctx context.Context, until time.Time, interval time.Duration, done func() bool) (waited bool) {
	for !done() && ctx.Err() == nil && time.Now().Before(until) {
		time.Sleep(interval)
		waited = true
	}
	return waited
}

// A mark comes to the hub as an event, in the order of all events. An answer waits for earlier
// marks, but not for longer than markPatience.
const (
	markPatience = time.Second
	markInterval = 5 * time.Millisecond
)

// awaitMarks waits until the hub has the marks that were accepted so far.
func (s *Server) awaitMarks(ctx context.Context) {
	marked := s.marked.Load()
	poll(ctx, time.Now().Add(markPatience), markInterval, func() bool { return s.hub.Marks() >= marked })
}

// await waits until the hub has everything from before the request.
func (s *Server) await(ctx context.Context) {
	s.awaitRead(ctx)
	s.awaitMarks(ctx)
}

// answer sends a document as JSON.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, v Viewer, value func() (any, error)) {
	s.send(w, r, v, s.answers, "application/json", func(to *bytes.Buffer) error {
		of, err := value()
		if err != nil {
			return err
		}
		return s.hub.encoding.during(r.Context(), clientOf(r.Context(), v), func() error {
			return document.Write(to, of, nil)
		})
	})
}

// send makes an answer in memory and sends it. A reader who is slow keeps no other waiting.
func (s *Server) send(w http.ResponseWriter, r *http.Request, v Viewer, limit *limiter, kind string, encode func(*bytes.Buffer) error) {
	c := clientOf(r.Context(), v)
	if !limit.take(r.Context(), w, c) {
		return
	}
	defer limit.release(c)
	var text bytes.Buffer
	err := encode(&text)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout)) // it took a while to make it
	if err != nil {
		http.Error(w, "ttmem: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Length", strconv.Itoa(text.Len()))
	_, _ = text.WriteTo(w) // the reader may have gone
}

// busy refuses a request for now.
func busy(w http.ResponseWriter, why string) {
	w.Header().Set("Retry-After", "5")
	http.Error(w, "ttmem: "+why, http.StatusServiceUnavailable)
}

// state sends the present state, as a recording.
func (s *Server) state(w http.ResponseWriter, r *http.Request, v Viewer) {
	s.await(r.Context())
	s.record(w, r, v, s.streams, func(out io.Writer) error { return s.hub.WriteState(r.Context(), v, out) })
}

// stream sends the present state and the later events, and has owners searched meanwhile.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, v Viewer) {
	search, ok := s.searchDuring(w, r, v)
	if !ok {
		return
	}
	s.await(r.Context())
	s.record(w, r, v, s.streams, func(out io.Writer) error {
		defer search()()
		return s.hub.Follow(r.Context(), v, out)
	})
}

// record sends a recording to a viewer who may see events.
func (s *Server) record(w http.ResponseWriter, r *http.Request, v Viewer, limit *limiter, write func(io.Writer) error) {
	if v == Nobody {
		http.Error(w, "ttmem: events are sent over the unix socket, which identifies the user, or with the token", http.StatusForbidden)
		return
	}
	c := clientOf(r.Context(), v)
	if !limit.take(r.Context(), w, c) {
		return
	}
	defer limit.release(c)
	out := &streamWriter{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "application/octet-stream")
	err := write(out)
	if err != nil && !out.begun {
		busy(w, err.Error())
	}
}

// streamWriter writes to a reader, who must take each part within writeTimeout.
type streamWriter struct {
	w       io.Writer
	control *http.ResponseController
	begun   bool
}

func (w *streamWriter) Write(b []byte) (int, error) {
	w.begun = true
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return w.w.Write(b)
}

// Flush sends what was written.
func (w *streamWriter) Flush() error {
	if err := w.control.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	return w.control.Flush()
}
