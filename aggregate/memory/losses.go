package memory

import (
	"maps"
	"slices"
)

// Losses are events of a process that were lost, by cause.
type Losses struct {
	// Lost are the losses since the process's figures were last known to be right. If there are
	// any, its figures may be wrong.
	Lost map[string]uint64 `json:"lost,omitempty"`
	// Corrected are earlier losses. At RightSinceNs its live buffers had been read from its
	// memory again. Earlier figures, such as peaks, may be wrong.
	Corrected    map[string]uint64 `json:"corrected,omitempty"`
	RightSinceNs uint64            `json:"right_since_ns,omitempty" wall:"right_since_wall_ns"`
}

// Count returns how many events were lost.
func (l *Losses) Count() uint64 { return Sum(l.Lost) + Sum(l.Corrected) }

// Correct reports that figures are right from a time on.
func (l *Losses) Correct(timeNs uint64) {
	for cause, n := range l.Lost {
		if l.Corrected == nil {
			l.Corrected = make(map[string]uint64)
		}
		l.Corrected[cause] += n
		l.RightSinceNs = timeNs
	}
	l.Lost = nil
}

// Clone returns a copy that does not change.
func (l *Losses) Clone() Losses {
	return Losses{maps.Clone(l.Lost), maps.Clone(l.Corrected), l.RightSinceNs}
}

// Sum adds up counts by cause.
func Sum(counts map[string]uint64) (n uint64) {
	for _, count := range counts {
		n += count
	}
	return n
}

// ProcessLosses are the losses of one process.
type ProcessLosses struct {
	PID     int    `json:"pid" user:"user"`
	Comm    string `json:"comm,omitempty"`
	SinceNs uint64 `json:"since_ns" wall:"since_wall_ns"`
	Losses
}

// AllLosses are the losses in a document.
type AllLosses struct {
	// Lost are the losses whose process is not known.
	Lost map[string]uint64 `json:"lost"`
	// Processes has the losses of each process.
	Processes []ProcessLosses `json:"process_losses,omitempty"`
	// OwnerSearches are the searches for owners that did not find all.
	OwnerSearches []ProcessSearch `json:"incomplete_owner_searches,omitempty"`
}

// A ProcessSearch is the latest search for owners in a process.
type ProcessSearch struct {
	PID  int    `json:"pid" user:"user"`
	Comm string `json:"comm,omitempty"`
	OwnerSearch
}

// Losses returns the losses that make the figures of some processes doubtful, or of all if pids is
// empty. With now, only the present figures matter: it leaves out processes that ended and
// corrected losses.
func (s *Snapshot) Losses(now bool, pids []int) AllLosses {
	all := AllLosses{Lost: s.Lost}
	for i := range s.Processes {
		p := &s.Processes[i]
		one := ProcessLosses{p.PID, p.Comm, p.SinceNs, p.Losses}
		if now {
			one.Corrected, one.RightSinceNs = nil, 0
		}
		if now && p.Exit != nil || len(pids) > 0 && !slices.Contains(pids, p.PID) {
			continue
		}
		if one.Count() > 0 {
			all.Processes = append(all.Processes, one)
		}
		if search := p.OwnerSearch; search != nil && search.Incomplete != "" && search.Unowned > 0 {
			all.OwnerSearches = append(all.OwnerSearches, ProcessSearch{p.PID, p.Comm, *search})
		}
	}
	return all
}

// Any reports whether events were lost.
func (a *AllLosses) Any() bool { return Sum(a.Lost) > 0 || len(a.Processes) > 0 }
