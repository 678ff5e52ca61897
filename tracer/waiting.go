package tracer

import (
	"maps"
	"slices"
	"sync"

	"ttmem/tracer/host"
)

// waitingMappings are the mappings that are discovered again later: another process has a lease
// on the file, or there is no room for another library.
type waitingMappings struct {
	mu   sync.Mutex
	list map[mappingKey]waitingMapping
}

type mappingKey struct {
	pid  int
	file host.FileID
}

type waitingMapping struct {
	host.NewMapping
	user int
}

// maxWaitingOfUser bounds the mappings of a user that wait.
const maxWaitingOfUser = 64

// add reports whether a mapping is new here, and whether it waits now.
func (w *waitingMappings) add(m host.NewMapping, user int) (isNew, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, n := mappingKey{m.PID, m.File}, 0
	for _, other := range w.list {
		if other.user == user {
			n++
		}
	}
	_, waits = w.list[key]
	if waits || n >= maxWaitingOfUser {
		return !waits, waits
	}
	w.list[key] = waitingMapping{m, user}
	return true, true
}

func (w *waitingMappings) remove(m host.NewMapping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.list, mappingKey{m.PID, m.File})
}

func (w *waitingMappings) all() []waitingMapping {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.list))
}
