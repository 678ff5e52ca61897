package service

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ttmem/aggregate/export/metrics"
)

// metrics sends the totals of all processes for Prometheus. Only a viewer who sees everything
// gets metrics of processes.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, v Viewer) {
	if !s.answers.acquire(v.UID) {
		busy(w, "unread answers at once: close some, or try again later")
		return
	}
	defer s.answers.release(v.UID)
	snapshot, err := s.hub.Snapshot(r.Context(), Viewer{All: true})
	if err != nil {
		http.Error(w, "ttmem: "+err.Error(), http.StatusInternalServerError)
		return
	}
	o := s.o.Metrics
	o.Version, o.Reading = s.o.Version, s.reading()
	if !v.All {
		o.Processes = 0
	}
	all := prometheus.NewRegistry()
	all.MustRegister(metrics.New(snapshot, o), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.hub.encoding.Lock()
	defer s.hub.encoding.Unlock()
	promhttp.HandlerFor(all, promhttp.HandlerOpts{DisableCompression: true}).ServeHTTP(w, r)
}
