package service

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strings"
	"time"
)

// Health is the answer of /v1/health of the service.
type Health struct {
	// V is the version of the document.
	V int `json:"v"`
	// Version is the version of ttmem.
	Version string `json:"version"`
	PID     int    `json:"pid"`
	// UptimeNs is how long it has been serving.
	UptimeNs uint64 `json:"uptime_ns"`
	// Processes is the number of processes, of all users, that are traced now, and
	// ExitedProcesses the number of ended ones.
	Processes       int    `json:"processes"`
	ExitedProcesses uint64 `json:"exited_processes"`
	LostEvents      uint64 `json:"lost_events"`
	// ResidentBytes is the memory that the service takes.
	ResidentBytes uint64 `json:"resident_bytes"`
	// Goroutines is the number of goroutines of the service.
	Goroutines int `json:"goroutines"`
	// Recording is "ok", or why nothing is recorded now; "" if recording is off.
	Recording string `json:"recording,omitempty"`
	// Reading is true while the existing memory of processes is still being read, so that totals
	// are too low.
	Reading bool `json:"reading,omitempty"`
	// HandledNs is the time before which all events have been sent to streams.
	HandledNs uint64 `json:"handled_ns,omitempty"`
	// OwnersAt are the moments at which a stream may have owners searched: peaks and marks.
	OwnersAt []string `json:"owners_at,omitempty"`
}

// RecordingOK means that events are recorded.
const RecordingOK = "ok"

func (s *Server) health(w http.ResponseWriter, r *http.Request, v Viewer) {
	s.answer(w, r, v, func() (any, error) {
		h := Health{
			V: Protocol, Version: s.o.Version, PID: os.Getpid(),
			UptimeNs:      uint64(time.Since(s.started)),
			ResidentBytes: residentBytes(), Goroutines: runtime.NumGoroutine(), Reading: s.reading(),
		}
		h.Processes, h.ExitedProcesses, h.LostEvents = s.hub.Counts()
		if s.o.HandledNs != nil {
			h.HandledNs = s.o.HandledNs()
		}
		if s.o.SearchFor != nil {
			h.OwnersAt = ownersAt
		}
		if s.o.Recording != nil {
			h.Recording = s.o.Recording()
		}
		return &h, nil
	})
}

// residentBytes is the memory that this process has.
func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, resident uint64
	if _, err := fmt.Fscan(strings.NewReader(string(text)), &size, &resident); err != nil {
		return 0
	}
	return resident * uint64(os.Getpagesize())
}
