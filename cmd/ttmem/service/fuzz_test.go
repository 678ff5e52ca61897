package service

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
)

// FuzzRequest: every user may send anything. What is answered, if anything, is HTTP.
func FuzzRequest(f *testing.F) {
	path, _ := serveWith(f, testHub().hub, Options{Mark: func(string, Viewer, int) error { return nil }})
	for _, request := range []string{
		"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n",
		"GET /v1/snapshot HTTP/1.0\r\n\r\n",
		"GET /v1/state HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /v1/state HTTP/1.1\r\n",
		"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n",
		"POST /v1/mark?name=warm%20up HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"POST /v1/mark?name=%1b&name HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
	} {
		f.Add([]byte(request))
	}
	f.Fuzz(func(t *testing.T, request []byte) {
		c, err := net.Dial("unix", path)
		qt.Assert(t, qt.IsNil(err))
		defer c.Close()
		qt.Assert(t, qt.IsNil(c.SetDeadline(time.Now().Add(2*time.Minute))))
		_, _ = c.Write(request) // it may be refused before all of it is there
		_ = c.(*net.UnixConn).CloseWrite()
		answer, _ := http.ReadResponse(bufio.NewReader(c), nil)
		if answer == nil {
			return
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body) // the connection is reset if it has more than what is refused
		if answer.Header.Get("Content-Type") != "application/octet-stream" {
			fuzztest.Printable(t, string(text))
		}
	})
}

// FuzzMark: what is taken for the name of a mark can be shown, and sent again.
func FuzzMark(f *testing.F) {
	for _, query := range []string{"name=warm+up", "name=%e2%80%ae", "name=a&name=b", "name=%", "name=" + strings.Repeat("x", maxMark+1)} {
		f.Add(query)
	}
	f.Fuzz(func(t *testing.T, query string) {
		name, err := markName(query)
		if err != nil {
			fuzztest.Printable(t, err.Error())
			return
		}
		fuzztest.Printable(t, name)
		qt.Check(t, qt.IsTrue(name != "" && utf8.RuneCountInString(name) <= maxMark && !strings.Contains(name, "\n")))
		again, err := markName("name=" + url.QueryEscape(name))
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(again, name))
	})
}

// FuzzAnswer: with --socket a client may ask anybody, who answers anything.
func FuzzAnswer(f *testing.F) {
	host := testHub()
	path, _ := serve(f, host.hub)
	for _, request := range []string{"health", "snapshot", "state", "no"} {
		f.Add([]byte(talk(f, path, "GET /v1/"+request+" HTTP/1.0\r\n\r\n")))
	}
	f.Add([]byte("HTTP/1.1 200 OK\r\nTtmem-Version: 1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n{\"v\":1"))
	f.Fuzz(func(t *testing.T, answer []byte) {
		c := &Client{path: "s.sock", http: &http.Client{Timeout: time.Minute, Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					_, _ = http.ReadRequest(bufio.NewReader(server))
					_, _ = server.Write(answer)
				}()
				return client, nil
			},
		}}}
		defer c.Close()
		ctx := context.Background()
		fuzztest.Bounded(t, len(answer), 1000, func() {
			_, _ = c.Health(ctx)
			_, _ = c.Snapshot(ctx)
			_, _ = c.State(ctx)
			_ = c.Mark(ctx, "mark")
		})
	})
}
