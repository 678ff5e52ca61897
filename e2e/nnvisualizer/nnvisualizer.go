// Package nnvisualizer runs the real TT-NN Visualizer of PyPI, for tests of reports.
package nnvisualizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// A Server is a running TT-NN Visualizer.
type Server struct{ address string }

// Start starts one, and installs it first if the cache has none. The test's end ends it.
func Start(t *testing.T) *Server {
	t.Helper()
	python, err := rig.PythonWith(t.Context(), "3.10", os.Stderr, rig.Visualizer...)
	qt.Assert(t, qt.IsNil(err))
	free, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	address := free.Addr().String()
	free.Close()
	host, port, _ := net.SplitHostPort(address)
	home := t.TempDir()
	// as the program ttnn-visualizer does, which would not end with this process
	cmd := exec.Command(filepath.Join(filepath.Dir(python), "gunicorn"), "-k", "gevent", "-w", "1", "-b", address, "ttnn_visualizer.app:create_app()")
	cmd.Env = append(os.Environ(), "HOME="+home, "APP_DATA_DIRECTORY="+home, "REPORT_DATA_DIRECTORY="+home,
		"FLASK_ENV=production", "HOST="+host, "PORT="+port, "USAGE_RECORDING_DISABLED=true")
	var output bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = home, &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // the signal comes when the thread ends
		started <- cmd.Start()
		ended <- cmd.Wait()
	}()
	qt.Assert(t, qt.IsNil(<-started))
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // it has a worker
		<-ended
	})
	s := &Server{address}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		answer, err := http.Get(s.url("up", ""))
		if err == nil {
			answer.Body.Close()
			return s
		}
		select {
		case err := <-ended:
			ended <- err
			t.Fatalf("TT-NN Visualizer ended: %v\n%s", err, output.String())
		default:
		}
		qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)), qt.Commentf("it does not answer: %s", err))
	}
}

func (s *Server) url(route, instance string) string {
	path, query, _ := strings.Cut(route, "?")
	if instance != "" {
		query += "&instanceId=" + url.QueryEscape(instance)
	}
	return fmt.Sprintf("http://%s/api/%s?%s", s.address, path, query)
}

// A Report is a report that a Server has opened.
type Report struct {
	*Server
	t        *testing.T
	instance string
}

// Open opens the report in a folder.
func (s *Server) Open(t *testing.T, dir string) *Report {
	t.Helper()
	asked, err := json.Marshal(map[string]string{"profiler_path": dir})
	qt.Assert(t, qt.IsNil(err))
	answer, err := http.Post(s.url("instance/local-paths", ""), "application/json", bytes.NewReader(asked))
	qt.Assert(t, qt.IsNil(err))
	var opened struct {
		Instance string `json:"instance_id"`
	}
	decode(t, answer, http.StatusOK, &opened)
	return &Report{s, t, opened.Instance}
}

// Get returns what a route such as "operations/3" answers.
func Get[T any](r *Report, route string, args ...any) (v T) {
	r.t.Helper()
	r.get(http.StatusOK, fmt.Sprintf(route, args...), &v)
	return v
}

// Missing checks that a route answers that the report does not have it.
func (r *Report) Missing(route string) {
	r.t.Helper()
	r.get(http.StatusNotFound, route, nil)
}

func (r *Report) get(status int, route string, to any) {
	r.t.Helper()
	answer, err := http.Get(r.url(route, r.instance))
	qt.Assert(r.t, qt.IsNil(err))
	decode(r.t, answer, status, to)
}

func decode(t *testing.T, answer *http.Response, status int, to any) {
	t.Helper()
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(answer.StatusCode, status), qt.Commentf("%s", body))
	if to != nil {
		qt.Assert(t, qt.IsNil(json.Unmarshal(body, to)), qt.Commentf("%s", body))
	}
}
