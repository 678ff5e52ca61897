package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestCommandsArePreparedFor: a client names its command, and a file that it has open by the descriptor. The kernel says
// which process the client is.
func TestCommandsArePreparedFor(t *testing.T) {
	var asked string
	var fails error
	path, _ := serveWith(t, testHub().hub, Options{
		PrepareFile: func(_ context.Context, pid, fd int) error {
			asked = fmt.Sprint(pid, fd)
			return fails
		},
		PrepareCommand: func(_ context.Context, pid, parent, fd int) error {
			asked = fmt.Sprint("command ", pid, parent, fd)
			return fails
		},
	})
	c, err := Dial(path)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	f, err := os.Open("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	qt.Check(t, qt.IsNil(c.PrepareFile(t.Context(), f)))
	qt.Check(t, qt.Equals(asked, fmt.Sprint(os.Getpid(), f.Fd())))
	for err, want := range map[error]string{
		errors.New("not a tt-metal library"): "the ttmem service at .*: not a tt-metal library",
		context.DeadlineExceeded:             "the ttmem service at .*: the file is not read yet",
	} {
		fails = err
		qt.Check(t, qt.ErrorMatches(c.PrepareFile(t.Context(), f), want))
	}
	fails = nil
	qt.Check(t, qt.IsNil(c.PrepareCommand(t.Context(), 12, nil)))
	qt.Check(t, qt.Equals(asked, fmt.Sprint("command ", 12, os.Getpid(), -1)))
	qt.Check(t, qt.IsNil(c.PrepareCommand(t.Context(), 12, f)))
	qt.Check(t, qt.Equals(asked, fmt.Sprint("command ", 12, os.Getpid(), f.Fd())))
	asked = ""
	for request, want := range map[string]string{
		"POST /v1/prepare?fd=-1": "400 Bad Request", "POST /v1/prepare?fd=9999999999": "400 Bad Request", "POST /v1/prepare": "400 Bad Request",
		"POST /v1/prepare?pid=-1": "400 Bad Request", "POST /v1/prepare?pid=": "400 Bad Request", "POST /v1/prepare?pid=1&fd=": "400 Bad Request",
		"GET /v1/prepare?fd=1": "405 Method Not Allowed",
	} {
		answer := talk(t, path, request+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
		qt.Check(t, qt.StringContains(answer, want))
	}
	qt.Check(t, qt.Equals(asked, ""))
	fails = fmt.Errorf("process 12 is none that you started: %w", fs.ErrPermission)
	qt.Check(t, qt.StringContains(talk(t, path, "POST /v1/prepare?pid=12 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), "403 Forbidden"))
}

// Without a unix socket there is no process whose command and files they are.
func TestCommandsAreOfUnixClients(t *testing.T) {
	s := NewServer(newHost().hub, Options{PrepareFile: func(context.Context, int, int) error { panic("asked") }})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/prepare?fd=1", nil)
	qt.Assert(t, qt.IsNil(err))
	a := &answerOf{header: make(http.Header)}
	s.prepare(a, r, TokenHolder)
	qt.Check(t, qt.Equals(a.status, http.StatusForbidden))
}
