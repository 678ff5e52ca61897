package service

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// Everybody gets the totals of all processes; processes are for root and the token.
func TestMetricsShowProcessesToTheTokenOnly(t *testing.T) {
	host := testHub()
	host.start(20, 4321)
	host.churn(20, 4321, 50)
	path, addr := serve(t, host.hub)
	const series = "ttmem_process_memory_used_bytes{"
	_, totals := get(t, addr, "/metrics", "", "")
	status, all := get(t, addr, "/metrics?processes=10", "", testToken)
	qt.Check(t, qt.Equals(status, 200))
	qt.Check(t, qt.StringContains(all, series+`chip="0",comm="comm-of-4321"`))
	qt.Check(t, qt.Equals(strings.Count(all, series), 2))
	qt.Check(t, qt.StringContains(totals, `ttmem_device_memory_used_bytes{chip="0",region="DRAM"}`))
	qt.Check(t, qt.StringContains(totals, "\nttmem_allocation_failures_total 1\n")) // of another user
	qt.Check(t, qt.StringContains(totals, "\nprocess_resident_memory_bytes "))
	qt.Check(t, qt.Not(qt.StringContains(totals, "-of-")))
	status, _ = get(t, addr, "/metrics?processes=10", "", "")
	qt.Check(t, qt.Equals(status, 403))
	status, _ = get(t, addr, "/metrics?processes=1001", "", testToken)
	qt.Check(t, qt.Equals(status, 400))
	qt.Check(t, qt.StringContains(talk(t, path, "GET /metrics HTTP/1.0\r\n\r\n"), "\nttmem_processes 2\n"))
}

// A client that does not read a large answer keeps no other waiting.
func TestASlowScrapeHoldsNothing(t *testing.T) {
	host := testHub()
	for pid := range 200 {
		host.start(100+pid, 4321)
		host.alloc(100+pid, 4321)
	}
	s := NewServer(host.hub, Options{Version: "1.2.3"})
	w := &stuckWriter{header: make(http.Header), begun: make(chan bool), end: make(chan bool)}
	r, err := http.NewRequest(http.MethodGet, "/metrics?processes=1000", nil)
	qt.Assert(t, qt.IsNil(err))
	done := make(chan bool)
	go func() { s.metrics(w, r, root); close(done) }()
	<-w.begun
	other := &answerOf{header: make(http.Header), status: http.StatusOK}
	answered := make(chan bool)
	go func() { s.metrics(other, r, Viewer{UID: 1000, All: true}); close(answered) }()
	select {
	case <-answered:
	case <-time.After(time.Minute):
		t.Error("another client waits for the slow one")
	}
	qt.Check(t, qt.StringContains(other.body.String(), "\nttmem_processes 201\n"))
	close(w.end)
	<-done
}

// stuckWriter takes no more of an answer until the end.
type stuckWriter struct {
	header     http.Header
	once       sync.Once
	begun, end chan bool
}

func (w *stuckWriter) Header() http.Header { return w.header }
func (w *stuckWriter) WriteHeader(int)     {}
func (w *stuckWriter) Write(b []byte) (int, error) {
	w.once.Do(func() { close(w.begun) })
	<-w.end
	return len(b), nil
}

// Chips that a program claims fill neither the metrics nor the snapshots, also after its end.
func TestClaimedChipsAreBounded(t *testing.T) {
	host := testHub()
	host.start(20, 4321)
	for chip := range 2000 {
		host.apply(event.Event{
			Kind: event.Alloc, PID: 20, TID: 20, Devices: []int{chip}, Region: event.DRAM, BufferID: uint64(chip) + 1,
			Allocator: uint64(chip) + 100, BytesPerBank: 1 << 10, Banks: 12,
		})
	}
	_, addr := serve(t, host.hub)
	for range 2 {
		_, text := get(t, addr, "/metrics?processes=10", "", testToken)
		qt.Check(t, qt.IsTrue(strings.Count(text, "\n") < 20_000), qt.Commentf("%d lines", strings.Count(text, "\n")))
		qt.Check(t, qt.StringContains(text, `ttmem_device_memory_used_bytes{chip="0",region="DRAM"}`))
		shown := host.shown(root)
		qt.Check(t, qt.Equals(len(shown.Devices), 1+256)) // one is of others, too
		pagetest.CheckSchema(t, "snapshot", asJSON(shown))
		host.apply(event.Event{Kind: event.ProcessExit, PID: 20, TID: 20})
		time.Sleep(2 * snapshotAge)
	}
}
