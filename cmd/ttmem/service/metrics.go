package service

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"

	"ttmem/aggregate/export/metrics"
)

// maxOwners is the maximum number of processes with metrics of their own.
const maxOwners = 1000

// metrics sends the totals of all processes for Prometheus and, to a viewer who sees everything,
// metrics of as many processes, containers and pods as the request asks for.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request, v Viewer) {
	o := metrics.Options{Version: s.o.Version, Reading: s.reading(), Chip: s.o.Chip}
	if asked := r.URL.Query().Get("processes"); asked != "" {
		var err error
		if o.Processes, err = strconv.Atoi(asked); err != nil || o.Processes < 0 || o.Processes > maxOwners {
			http.Error(w, fmt.Sprintf("ttmem: processes: give a number up to %d", maxOwners), http.StatusBadRequest)
			return
		}
		if !v.All {
			http.Error(w, "ttmem: metrics of processes are for root and clients with the token", http.StatusForbidden)
			return
		}
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...)
	s.send(w, r, v, s.answers, string(format), func(to *bytes.Buffer) error {
		snapshot, err := s.hub.Snapshot(r.Context(), Viewer{All: true})
		if err != nil {
			return err
		}
		all := prometheus.NewRegistry()
		all.MustRegister(metrics.New(snapshot, o), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
		return s.hub.encoding.during(r.Context(), clientOf(r.Context(), v), func() error { return encode(to, all, format) })
	})
}

func encode(w io.Writer, all prometheus.Gatherer, format expfmt.Format) error {
	families, err := all.Gather()
	if err != nil {
		return err
	}
	to := expfmt.NewEncoder(w, format)
	for _, family := range families {
		if err := to.Encode(family); err != nil {
			return err
		}
	}
	return nil
}
