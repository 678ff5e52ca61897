package service

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// marks are those that a server has taken.
type marks struct {
	mu    sync.Mutex
	names []string
	by    []Viewer
	err   error
}

func (m *marks) take(name string, v Viewer, _ int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.names, m.by = append(m.names, name), append(m.by, v)
	return m.err
}

func TestAMarkHasTheUserWhoSetIt(t *testing.T) {
	var m marks
	path, _ := serveWith(t, testHub().hub, Options{Mark: m.take})
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	names := []string{"step 1", "a&name=b%20?#/../é", strings.Repeat("ü", maxMark)}
	for _, name := range names {
		qt.Assert(t, qt.IsNil(c.Mark(context.Background(), name)))
	}
	qt.Check(t, qt.DeepEquals(m.names, names))
	qt.Check(t, qt.Equals(m.by[0], viewerOf(uint32(os.Getuid()))))
	m.err = errors.New("not now")
	qt.Check(t, qt.ErrorMatches(c.Mark(context.Background(), "x"), "the ttmem service at .*: not now"))
}

func TestMarkThatIsNoNameIsALine(t *testing.T) {
	t.Parallel()
	var m marks
	path, addr := serveWith(t, testHub().hub, Options{Mark: m.take})
	post := func(query, rest string) string {
		return "POST /v1/mark" + query + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + rest + "\r\n"
	}
	for request, want := range map[string]string{
		post("", ""):                                      "400 Bad Request",
		post("?name=", ""):                                "400 Bad Request",
		post("?nom=x", ""):                                "400 Bad Request",
		post("?name=a&name=b", ""):                        "400 Bad Request",
		post("?name=a;b", ""):                             "400 Bad Request",
		post("?name=%zz", ""):                             "400 Bad Request",
		post("?name=a%0ab", ""):                           "400 Bad Request",
		post("?name=%1b[2J", ""):                          "400 Bad Request",
		post("?name=%00", ""):                             "400 Bad Request",
		post("?name=%ff", ""):                             "400 Bad Request",
		post("?name=%e2%80%ae", ""):                       "400 Bad Request", // text that runs backwards
		post("?name="+strings.Repeat("x", maxMark+1), ""): "400 Bad Request",
		post("?name="+strings.Repeat("x", 100<<10), ""):   "431 Request Header Fields Too Large",
		post("?name=x", "Content-Length: 9\r\n"):          "400 Bad Request",
		post("?name=x", "Transfer-Encoding: chunked\r\n"): "400 Bad Request",
		"GET /v1/mark?name=x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n": "405 Method Not Allowed",
	} {
		answer := talk(t, path, request)
		status, rest, _ := strings.Cut(answer, "\r\n")
		qt.Check(t, qt.StringContains(status, want), qt.Commentf("%.60q: %q", request, answer))
		_, body, _ := strings.Cut(rest, "\r\n\r\n")
		qt.Check(t, qt.HasLen(strings.Split(strings.TrimSpace(body), "\n"), 1))
	}
	answer, err := testClient.Post("https://"+addr+"/v1/mark?name=x", "", nil)
	qt.Assert(t, qt.IsNil(err))
	answer.Body.Close()
	qt.Check(t, qt.Equals(answer.StatusCode, http.StatusForbidden))
	qt.Check(t, qt.HasLen(m.names, 0))
}

// What a client asks for after it set a mark has the mark, although that waits in line with
// other events.
func TestAnswerHasMarksThatWereSetBefore(t *testing.T) {
	host := newHost()
	path, _ := serveWith(t, host.hub, Options{Mark: func(name string, v Viewer, _ int) error {
		time.AfterFunc(100*time.Millisecond, func() { host.apply(event.Event{Kind: event.Mark, Cause: name, UID: v.UID}) })
		return nil
	}})
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	ctx := t.Context()
	qt.Assert(t, qt.IsNil(c.Mark(ctx, "warm")))
	r, err := c.Stream(ctx)
	qt.Assert(t, qt.IsNil(err))
	var e event.Event
	qt.Assert(t, qt.IsNil(r.Next(&e)))
	s := aggregate.New()
	s.Apply(&e)
	qt.Assert(t, qt.HasLen(s.Marks(), 1))
	qt.Check(t, qt.Equals(s.Marks()[0].Name, "warm"))
}

func TestMarksOfAUserAreBounded(t *testing.T) {
	var r rate
	now := time.Unix(1000, 0)
	for i := range 2 * maxMarks {
		qt.Check(t, qt.Equals(r.allow(client{uid: 1000}, now), i < maxMarks))
	}
	qt.Check(t, qt.IsTrue(r.allow(client{uid: 1001}, now)))
	qt.Check(t, qt.IsTrue(r.allow(client{uid: 1000}, now.Add(time.Second))))
	qt.Check(t, qt.HasLen(r.by, 1)) // it does not grow with every user who sets a mark
}

// TestAMarkIsShownToTheUserWhoSetIt: also to root.
func TestAMarkIsShownToTheUserWhoSetIt(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	var pipes []*pipe
	var ends []func() error
	for _, v := range []Viewer{{UID: 1000}, {UID: 2000}, root} {
		p, end := follow(t, host.hub, v)
		pipes, ends = append(pipes, p), append(ends, end)
	}
	host.apply(event.Event{Kind: event.Mark, Cause: "of-1000", UID: 1000})
	host.apply(event.Event{Kind: event.Mark, Cause: "of-2000", UID: 2000})
	host.apply(event.Event{Kind: event.Mark, Cause: "of-root"})
	host.apply(event.Event{Kind: event.Mark, Cause: "in-10", PID: 10})
	host.hub.End()
	for i, want := range []string{"of-1000 in-10", "of-2000", "of-1000 of-2000 of-root in-10"} {
		qt.Assert(t, qt.ErrorIs(ends[i](), errEnded))
		var got []string
		for _, e := range read(t, pipes[i].bytes()) {
			if e.Kind == event.Mark {
				got = append(got, e.Cause)
			}
		}
		qt.Check(t, qt.Equals(strings.Join(got, " "), want))
	}
}

func TestHealthHasTheStateOfTheRecording(t *testing.T) {
	now := RecordingOK
	path, _ := serveWith(t, testHub().hub, Options{Recording: func() string { return now }})
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	for _, now = range []string{RecordingOK, "no space left"} {
		h, err := c.Health(context.Background())
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(h.Recording, now))
	}
}
