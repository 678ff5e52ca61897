package service

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// testToken is the token of TCP clients of servers in tests.
const testToken = "0123456789abcdef"

// testSecret has the token, and testClient trusts servers that have the secret.
var testSecret, testClient = func() (*Secret, *http.Client) {
	dir, err := os.MkdirTemp("", "ttmem-secret")
	if err == nil {
		defer os.RemoveAll(dir)
		err = os.WriteFile(dir+"/token", []byte(testToken), 0o600)
	}
	if err != nil {
		panic(err)
	}
	secret, err := ReadSecret(dir + "/token")
	if err != nil {
		panic(err)
	}
	return secret, trusting(secret)
}()

// trusting is a client that has a copy of the certificate of a secret.
func trusting(secret *Secret) *http.Client {
	text, err := os.ReadFile(secret.Certificate)
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
}

func ignore(string) {}

// serve starts a server on a socket, and on TCP.
func serve(t testing.TB, hub *Hub) (path, addr string) {
	t.Helper()
	return serveWith(t, hub, Options{Stacks: func() *memory.Stacks { return &memory.Stacks{Taken: 42} }})
}

func serveWith(t testing.TB, hub *Hub, o Options) (path, addr string) {
	t.Helper()
	o.Version = "1.2.3"
	return serveOn(t, NewServer(hub, o))
}

func serveOn(t testing.TB, s *Server) (path, addr string) {
	t.Helper()
	path = socketPath(t)
	socket, err := Listen(path)
	qt.Assert(t, qt.IsNil(err))
	tcp, err := ListenTCP("127.0.0.1:0", false, testSecret, ignore)
	qt.Assert(t, qt.IsNil(err))
	done := make(chan error, 2)
	go func() { done <- s.ServeUnix(socket) }()
	go func() { done <- s.ServeTCP(tcp) }()
	t.Cleanup(func() {
		s.Close()
		qt.Check(t, qt.IsNil(<-done))
		qt.Check(t, qt.IsNil(<-done))
		qt.Check(t, qt.IsNil(socket.Close()))
	})
	return path, tcp.ports[0].at.String()
}

// talk sends text and gives all that comes back until the end or the deadline.
func talk(t testing.TB, path, text string) string {
	t.Helper()
	c, err := net.Dial("unix", path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	qt.Assert(t, qt.IsNil(c.SetDeadline(time.Now().Add(time.Minute))))
	_, _ = io.WriteString(c, text) // it may be refused before all of it is there
	answer, _ := io.ReadAll(c)
	return string(answer)
}

func testHub() *host {
	host := newHost()
	host.start(10, os.Getuid())
	host.churn(10, os.Getuid(), 100)
	host.fail(10, os.Getuid())
	return host
}

func TestClientGetsWhatTheHubHas(t *testing.T) {
	host := testHub()
	path, _ := serve(t, host.hub)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	ctx := context.Background()

	s, err := c.Snapshot(ctx)
	qt.Assert(t, qt.IsNil(err))
	want := *host.shown(viewerOf(uint32(os.Getuid())))
	if os.Getuid() == 0 {
		want.Stacks = &memory.Stacks{Taken: 42}
	}
	qt.Check(t, qt.Equals(asJSON(s), asJSON(want)))

	h, err := c.Health(ctx)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(h.Version, "1.2.3"))
	qt.Check(t, qt.Equals(h.Processes, 1))
	qt.Check(t, qt.Equals(h.PID, os.Getpid()))
	qt.Check(t, qt.IsTrue(h.ResidentBytes > 1<<20))

	streaming, stop := context.WithCancel(ctx)
	r, err := c.Stream(streaming)
	qt.Assert(t, qt.IsNil(err))
	var e event.Event
	qt.Assert(t, qt.IsNil(r.Next(&e)))
	qt.Check(t, qt.Equals(e.Kind, event.Checkpoint))
	state := aggregate.New()
	state.Apply(&e)
	host.churn(10, os.Getuid(), 100)
	host.apply(event.Event{Kind: event.ProcessExit, PID: 10, TID: 10, ExitStatus: 3})
	host.hub.Flush()
	for e.Kind != event.ProcessExit {
		qt.Assert(t, qt.IsNil(r.Next(&e)))
		state.Apply(&e)
	}
	qt.Check(t, qt.Equals(asJSON(state.Snapshot().Devices), asJSON(present(host.hub).Devices)))
	stop()
	qt.Check(t, qt.IsNotNil(r.Next(&e)))
	waitFor(t, func() bool { return followers(host.hub) == 0 })
}

// TestStateIsAWholeRecording: it ends, and makes the state that the service has, with
// every buffer and its stack.
func TestStateIsAWholeRecording(t *testing.T) {
	host := testHub()
	host.alloc(10, os.Getuid())
	path, _ := serve(t, host.hub)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	for range 2 {
		r, err := c.State(context.Background())
		qt.Assert(t, qt.IsNil(err))
		state := aggregate.New()
		var e event.Event
		for err = r.Next(&e); err == nil; err = r.Next(&e) {
			state.Apply(&e)
		}
		qt.Assert(t, qt.ErrorIs(err, io.EOF))
		_, whole := r.End()
		qt.Check(t, qt.IsTrue(whole))
		qt.Check(t, qt.Equals(asJSON(state.Snapshot()), asJSON(present(host.hub))))
		held := state.Buffers()
		qt.Check(t, qt.Equals(len(held), len(host.held[10])))
		qt.Check(t, qt.IsTrue(len(held) > 0))
		for i := range held {
			qt.Check(t, qt.HasLen(held[i].Stack.Frames(), 1))
		}
		qt.Check(t, qt.Equals(followers(host.hub), 0)) // it follows no more
		host.alloc(10, os.Getuid())
	}
	host.hub.End()
	_, err = c.State(context.Background())
	qt.Check(t, qt.ErrorMatches(err, ".*the service has ended"))
}

// TestStateShowsUsersTheirOwnProcesses: it names no process of another user.
func TestStateShowsUsersTheirOwnProcesses(t *testing.T) {
	host := testHub()
	host.start(20, 4321)
	host.alloc(20, 4321)
	host.start(30, 4322)
	host.alloc(30, 4322)
	var b bytes.Buffer
	qt.Assert(t, qt.IsNil(host.hub.WriteState(context.Background(), Viewer{UID: 4321}, &b)))
	r, err := recording.NewReader(&b)
	qt.Assert(t, qt.IsNil(err))
	state := aggregate.New()
	for e := (event.Event{}); r.Next(&e) == nil; {
		state.Apply(&e)
	}
	held := state.Buffers()
	qt.Assert(t, qt.HasLen(held, 1))
	qt.Check(t, qt.Equals(held[0].PID, 20))
	qt.Check(t, qt.HasLen(state.Snapshot().Processes, 1))
}

// TestTwoUsersOfAChipHaveItsPeaks: the moments and bytes that root has, with their own call sites.
func TestTwoUsersOfAChipHaveItsPeaks(t *testing.T) {
	host := newHost()
	peaksFor := func(v Viewer) memory.RegionPeak {
		var b bytes.Buffer
		qt.Assert(t, qt.IsNil(host.hub.WriteState(context.Background(), v, &b)))
		state := aggregate.New()
		for _, e := range read(t, b.Bytes()) {
			state.Apply(&e)
		}
		peaks := state.RegionPeaks()
		qt.Assert(t, qt.HasLen(peaks, 1))
		return peaks[0]
	}
	host.start(20, 4321)
	host.start(30, 4322)
	for range 3 {
		host.churn(20, 4321, 20)
		host.churn(30, 4322, 20)
		all := peaksFor(root)
		qt.Assert(t, qt.HasLen(all.Holders, 2))
		for i, h := range all.Holders {
			mine := peaksFor(Viewer{UID: 4321 + h.PID/10 - 2})
			qt.Check(t, qt.Equals(asJSON(mine.Holders), asJSON(all.Holders[i:i+1])))
			qt.Check(t, qt.Equals(mine.OthersBytes, all.Holders[1-i].Bytes))
			mine.Holders, mine.OthersBytes = all.Holders, 0
			qt.Check(t, qt.Equals(asJSON(mine), asJSON(all)))
		}
	}
}

// TestAMissingServiceDiffersFromOtherErrors: callers that can do without a service go on.
func TestAMissingServiceDiffersFromOtherErrors(t *testing.T) {
	_, err := Dial(socketPath(t))
	qt.Check(t, qt.ErrorIs(err, ErrNone))
	qt.Check(t, qt.ErrorMatches(err, "no ttmem service at .*: start one with `sudo ttmem serve --socket .*`"))
}

// TestStackOfAFailureComesBack: the snapshot of a client shows the same as that of
// the service.
func TestStackOfAFailureComesBack(t *testing.T) {
	host := newHost()
	host.start(10, os.Getuid())
	host.apply(event.Event{
		Kind: event.AllocFailed, PID: 10, TID: 10, Region: event.L1, Reason: event.ReasonOutOfMemory,
		Stack: event.StackOf([]event.Frame{{Kind: event.Python, Name: "main", File: "a.py", Line: 3}}),
	})
	path, _ := serve(t, host.hub)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	s, err := c.Snapshot(context.Background())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(s.Failures[0].Stack.Frames(), []event.Frame{{Kind: event.Python, Name: "main", File: "a.py", Line: 3}}))
}

// documents are the names of the documents in docs/schema.json.
var documents = map[string]string{"/v1/snapshot": "snapshot", "/v1/health": "health"}

// TestTCPShowsNoProcess: who asks over TCP gets totals and nothing else.
func TestTCPShowsNoProcess(t *testing.T) {
	host := testHub()
	_, addr := serve(t, host.hub)
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/v1/snapshot": {200, `"allocated_bytes"`}, "/v1/health": {200, `"processes":1`}, "/v1/stream": {403, "unix socket"},
		"/v1/state": {403, "unix socket"}, "/v1/past": {403, "unix socket"},
	} {
		answer, err := testClient.Get("https://" + addr + path)
		qt.Assert(t, qt.IsNil(err))
		text, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(answer.StatusCode, want.status))
		qt.Check(t, qt.StringContains(string(text), want.text))
		qt.Check(t, qt.Not(qt.StringContains(string(text), "of-")), qt.Commentf("%s: %s", path, text))
		if name := documents[path]; name != "" {
			pagetest.CheckSchema(t, name, string(text))
		}
	}
}

func TestWhatIsNotServedIsALine(t *testing.T) {
	t.Parallel()
	path, _ := serve(t, testHub().hub)
	for request, want := range map[string]string{
		"GET /v2/snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                       "404 Not Found",
		"GET /v1/snapshot/../../etc HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":             "404 Not Found",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                              "404 Not Found",
		"POST /v1/snapshot HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n": "405 Method Not Allowed",
		"CONNECT /v1/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n":                     "405 Method Not Allowed",
		"GET /v1/snapshot HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n":                "400 Bad Request",
		"GET /v1/snapshot HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n":  "400 Bad Request",
		"GET /v1/snapshot HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 100<<10) + "\r\n\r\n": "431 Request Header Fields Too Large",
		"GET /v1/snapshot HTTP/1.1\r\nHost: x\r\n" + strings.Repeat("X: y\r\n", 20_000):           "431 Request Header Fields Too Large",
		"\x00\xff\x16\x03\x01 garbage\r\n\r\n":                                                    "400 Bad Request",
		"GET /v1/stream HTTP/2.0\r\n\r\n":                                                         "505 HTTP Version Not Supported",
	} {
		answer := talk(t, path, request)
		status, rest, _ := strings.Cut(answer, "\r\n")
		qt.Check(t, qt.StringContains(status, want), qt.Commentf("%.60q: %q", request, answer))
		_, body, _ := strings.Cut(rest, "\r\n\r\n")
		qt.Check(t, qt.HasLen(strings.Split(strings.TrimSpace(body), "\n"), 1))
	}
	qt.Check(t, qt.StringContains(talk(t, path, "GET /v1/health HTTP/1.0\r\n\r\n"), `"version":"1.2.3"`))
}

// TestQuietStreamStays: nothing happens for longer than a request may take, and the
// stream is still there.
func TestQuietStreamStays(t *testing.T) {
	t.Parallel()
	host := testHub()
	path, _ := serve(t, host.hub)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	_, err = c.Stream(context.Background())
	qt.Assert(t, qt.IsNil(err))
	for range 2 { // the second would find that nobody reads
		time.Sleep(headerTimeout/2 + time.Second)
		host.alloc(10, os.Getuid())
		host.hub.Flush()
	}
	qt.Check(t, qt.Equals(followers(host.hub), 1))
}

// TestHalfARequestIsNotWaitedForForever: a client that sends no more is cut off.
func TestHalfARequestIsNotWaitedForForever(t *testing.T) {
	t.Parallel()
	path, _ := serve(t, testHub().hub)
	began := time.Now()
	qt.Check(t, qt.Not(qt.StringContains(talk(t, path, "GET /v1/snap"), "200 OK")))
	took := time.Since(began)
	qt.Check(t, qt.IsTrue(took >= headerTimeout-time.Second), qt.Commentf("%v", took))
}

// TestConnectionsAreBounded: one connection too many gets an error at once, and works
// when another has been closed.
func TestConnectionsAreBounded(t *testing.T) {
	path, _ := serve(t, testHub().hub)
	most := maxConnectionsPerUser
	if os.Getuid() == 0 {
		most = maxConnections
	}
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range most {
		c, err := net.Dial("unix", path)
		qt.Assert(t, qt.IsNil(err))
		open = append(open, c)
		fmt.Fprint(c, "GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n")
		_, err = http.ReadResponse(bufio.NewReader(c), nil)
		qt.Assert(t, qt.IsNil(err))
	}
	refused := talk(t, path, "")
	qt.Check(t, qt.StringContains(refused, "503 Service Unavailable"))
	qt.Check(t, qt.StringContains(refused, "ttmem: too many connections at once"))
	_, err := Dial(path)
	qt.Check(t, qt.ErrorMatches(err, `the ttmem service at .*(too many connections at once: .*|or too many are open)`))
	open[0].Close()
	waitFor(t, func() bool {
		c, err := Dial(path)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
}

// TestStreamsAreBounded: a user has so many of them, root all but those of others.
func TestStreamsAreBounded(t *testing.T) {
	host := testHub()
	path, _ := serve(t, host.hub)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	most := maxStreamsPerUser
	if os.Getuid() == 0 {
		most = maxStreams
	}
	for range most {
		_, err := c.Stream(ctx)
		qt.Assert(t, qt.IsNil(err))
	}
	_, err = c.Stream(ctx)
	qt.Check(t, qt.ErrorMatches(err, `the ttmem service at .*: too many streams at once: .*`))
	cancel()
	waitFor(t, func() bool { return followers(host.hub) == 0 })
	_, err = c.Stream(context.Background())
	qt.Check(t, qt.IsNil(err))
}

// TestClosingEndsFollowers: a stream is a complete recording when the service
// ends.
func TestClosingEndsFollowers(t *testing.T) {
	host := testHub()
	path := socketPath(t)
	socket, err := Listen(path)
	qt.Assert(t, qt.IsNil(err))
	defer socket.Close()
	s := NewServer(host.hub, Options{Version: "1"})
	go s.ServeUnix(socket)
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	r, err := c.Stream(context.Background())
	qt.Assert(t, qt.IsNil(err))
	host.alloc(10, 0)
	s.Close()
	var e event.Event
	last := uint64(0)
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		last = e.BufferID
	}
	qt.Check(t, qt.Equals(err, io.EOF))
	qt.Check(t, qt.Equals(last, host.next)) // nothing is missing
	_, complete := r.End()
	qt.Check(t, qt.IsTrue(complete))
}

func TestLimiterKeepsAPartForRoot(t *testing.T) {
	l := newLimiter("things", 10, 3, 2)
	of := func(uid int) client { return client{uid: uid} }
	for uid := 1; uid <= 3; uid++ {
		for i := range 4 {
			want := ""
			switch {
			case i == 3 && uid < 3:
				want = "too many things at once: you have 3: close some, or try again later"
			case i >= 2 && uid == 3:
				want = "too many things at once of all users: try again later"
			}
			qt.Check(t, qt.Equals(l.acquire(of(uid)), want), qt.Commentf("user %d, %d", uid, i))
		}
	}
	qt.Check(t, qt.Equals(l.acquire(of(0)), ""))
	qt.Check(t, qt.Equals(l.acquire(of(0)), ""))
	qt.Check(t, qt.Not(qt.Equals(l.acquire(of(0)), "")))
	l.release(of(1))
	qt.Check(t, qt.Equals(l.acquire(of(0)), ""))
	qt.Check(t, qt.Not(qt.Equals(l.acquire(of(4)), "")))
	qt.Check(t, qt.HasLen(l.by, 4))
	for range 3 {
		l.release(of(0))
	}
	qt.Check(t, qt.HasLen(l.by, 3)) // it does not grow with all who ever came
}

// A request waits for what the same client does at once, and is not refused for it.
func TestARequestWaitsForItsClientsOthers(t *testing.T) {
	l := newLimiter("things", 10, 1, 2)
	one := client{uid: 1}
	qt.Assert(t, qt.Equals(l.acquire(one), ""))
	go func() {
		time.Sleep(limitPatience / 20)
		l.release(one)
	}()
	w := &answerOf{header: make(http.Header), status: http.StatusOK}
	qt.Check(t, qt.IsTrue(l.take(t.Context(), w, one)), qt.Commentf("%s", w.body.String()))
}

func TestDialNamesTheSocketThatWasGiven(t *testing.T) {
	c := &Client{path: DefaultSocket}
	err := c.explain(context.Background(), os.ErrNotExist)
	qt.Check(t, qt.ErrorMatches(err, "no ttmem service at /run/ttmem.sock: start one with `sudo ttmem serve`"))
	c.path = "/run/other.sock"
	err = c.explain(context.Background(), os.ErrNotExist)
	qt.Check(t, qt.ErrorMatches(err, "no ttmem service at .*: start one with `sudo ttmem serve --socket /run/other.sock`"))
}

func TestDialSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	stale := dir + "/stale"
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	qt.Assert(t, qt.IsNil(err))
	l.SetUnlinkOnClose(false)
	l.Close()
	qt.Assert(t, qt.IsNil(os.WriteFile(dir+"/file", nil, 0o644)))
	answers := func(name, text string) string {
		l, err := net.Listen("unix", dir+"/"+name)
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = c.Read(make([]byte, 4096))
				_, _ = io.WriteString(c, text)
				c.Close()
			}
		}()
		return dir + "/" + name
	}
	for path, want := range map[string]string{
		dir + "/nothing": "no ttmem service at .*/nothing: start one with `sudo ttmem serve --socket .*/nothing`",
		stale:            "no ttmem service at .*/stale: start one with `sudo ttmem serve --socket .*/stale`",
		dir + "/file":    ".*/file is not the socket of a ttmem service: give the path of one",
		answers("garbage", "SSH-2.0-OpenSSH\r\n"):                        "the server at .*/garbage is not a ttmem service: .*",
		answers("web", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"): "the server at .*/web is not a ttmem service: .*",
		answers("mute", ""): "the ttmem service at .*/mute closed the connection: .*",
		answers("newer", "HTTP/1.1 404 Not Found\r\nTtmem-Version: 9\r\nContent-Length: 9\r\n\r\nttmem: no"): `the ttmem service at .*/newer is of another version \(9\): .*`,
	} {
		_, err := Dial(path)
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}

// TestReaderThatDoesNotReadIsCutOff: a stream that nobody reads ends, with little
// memory; the others and the tracer go on.
func TestReaderThatDoesNotReadIsCutOff(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes as long as a reader is waited for")
	}
	host := testHub()
	path, _ := serve(t, host.hub)
	c, err := net.Dial("unix", path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	fmt.Fprint(c, "GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
	waitFor(t, func() bool { return followers(host.hub) == 1 })
	began := time.Now()
	for followers(host.hub) == 1 {
		for range 2000 {
			host.alloc(10, os.Getuid())
			host.free(10)
		}
		host.hub.Flush()
		time.Sleep(10 * time.Millisecond)
		if time.Since(began) > writeTimeout+2*time.Minute {
			t.Fatal("it still gets events")
		}
	}
	// what it gets when it reads at last is cut short, not wrong
	b, _ := io.ReadAll(c)
	qt.Check(t, qt.IsFalse(bytes.HasSuffix(b, []byte("0\r\n\r\n"))))
}
