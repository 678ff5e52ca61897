package service

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// However much one client wants, another one gets its turn: the flood waits for itself.
func TestAFloodWaitsForItself(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	turns := newTurns(2)
	flood, other := client{uid: 1000}, client{uid: 2000}
	first, err := turns.take(ctx, flood)
	qt.Assert(t, qt.IsNil(err))
	refused := make(chan error)
	for range 20 {
		go func() {
			_, err := turns.take(ctx, flood)
			refused <- err
		}()
	}
	for range 3 {
		end, err := turns.take(ctx, other)
		qt.Assert(t, qt.IsNil(err))
		end(0, 0)
	}
	cancel()
	for range 20 {
		qt.Check(t, qt.ErrorIs(<-refused, context.Canceled))
	}
	first(0, 0)
	qt.Check(t, qt.HasLen(turns.by, 0))
}

// A user whose state takes long to make keeps no other from an answer of any kind.
func TestOthersAreAnsweredBesideAFlood(t *testing.T) {
	host := testHub()
	host.start(20, 4321)
	host.alloc(20, 4321)
	s := NewServer(host.hub, Options{Version: "1.2.3"})
	flood := client{uid: 1000}
	for _, held := range []*turns{host.hub.joining, host.hub.encoding} {
		end, err := held.take(t.Context(), flood)
		qt.Assert(t, qt.IsNil(err))
		defer end(0, 0)
	}
	// it has made the tracer wait for so long that it may not again for an hour
	end, err := host.hub.pausing.take(t.Context(), flood)
	qt.Assert(t, qt.IsNil(err))
	end(0, time.Hour)
	for _, path := range []string{"/v1/snapshot", "/v1/state", "/v1/health", "/metrics", "/debug/pprof/device_memory"} {
		w := &answerOf{header: make(http.Header), status: http.StatusOK}
		r, err := http.NewRequestWithContext(as(t.Context(), client{uid: 4321}), http.MethodGet, "http://ttmem"+path, nil)
		qt.Assert(t, qt.IsNil(err))
		done := make(chan bool)
		go func() { defer close(done); s.ServeHTTP(w, r) }()
		select {
		case <-done:
			qt.Check(t, qt.Equals(w.status, http.StatusOK), qt.Commentf("%s: %s", path, w.body.String()))
		case <-time.After(time.Minute):
			t.Fatalf("%s waits for another user", path)
		}
	}
}

// as is the context of requests of a client, who sees their own processes.
func as(ctx context.Context, c client) context.Context {
	return context.WithValue(ctx, connKey{}, &conn{client: c, viewer: Viewer{UID: c.uid}})
}

// The kernel says whose socket is at the other end of a connection on loopback.
func TestClientsOnLoopbackAreUsers(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		qt.Assert(t, qt.IsNil(err))
		theirs, err := net.Dial("tcp", l.Addr().String())
		qt.Assert(t, qt.IsNil(err))
		ours, err := l.Accept()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(clientAt(ours), client{uid: os.Getuid()}))
		l.Close()
		ours.Close()
		theirs.Close()
	}
	qt.Check(t, qt.Equals(clientAt(from{remote: "192.0.2.7:5"}), client{uid: unknownUser, host: netip.MustParseAddr("192.0.2.7")}))
	qt.Check(t, qt.Equals(clientAt(from{remote: "[2001:db8::1:2:3:4]:5"}), client{uid: unknownUser, host: netip.MustParseAddr("2001:db8::")}))
}

// A user with a range of subordinate ids is one client more, and not thousands.
func TestSubordinateIdsAreOneClient(t *testing.T) {
	before := subordinate
	t.Cleanup(func() { subordinate = before })
	subordinate = filepath.Join(t.TempDir(), "subuid")
	qt.Assert(t, qt.IsNil(os.WriteFile(subordinate, []byte("ann:100000:65536\nnonsense\n1001:165536:65536\n"), 0o644)))
	for uid, want := range map[int]int{0: 0, 1000: 1000, 100000: 100000, 165535: 100000, 165536: 165536, 200000: 165536, 231072: 231072} {
		qt.Check(t, qt.Equals(firstOfRange(uid), want))
	}
}

// from is a connection of another host.
type from struct {
	net.Conn
	remote string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(f.remote))
}
func (f from) LocalAddr() net.Addr { return &net.TCPAddr{IP: net.IPv6loopback, Port: 9464} }

// The only client of a service, which sends one request after the other and does not wait for the ends of
// those that it gave up, is never told that there are too many.
func TestTheOnlyClientIsNeverTooMany(t *testing.T) {
	_, addr := serve(t, testHub().hub)
	for i := range 3 * maxAnswersPerUser {
		ctx, cancel := context.WithCancel(t.Context())
		r := withToken(t, http.MethodGet, "https://"+addr+"/v1/state").WithContext(ctx)
		if i%2 == 0 {
			time.AfterFunc(time.Duration(i)*200*time.Microsecond, cancel)
		}
		if answer, err := testClient.Do(r); err == nil {
			text, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			qt.Check(t, qt.Equals(answer.StatusCode, http.StatusOK), qt.Commentf("%d: %s", i, fmt.Sprintf("%.80s", text)))
		}
		cancel()
	}
}
