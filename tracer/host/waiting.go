package host

import (
	"maps"
	"slices"
	"sync"
)

// WaitingMappings are the mappings that are discovered again later: another process has a lease
// on the file, or there is no room for another library. The zero value is empty.
type WaitingMappings struct {
	mu   sync.Mutex
	list map[mappingKey]WaitingMapping
}

type mappingKey struct {
	pid  int
	file FileID
}

// A WaitingMapping is a mapping in a process of a user.
type WaitingMapping struct {
	NewMapping
	User int
}

// maxWaitingOfUser bounds the mappings of a user that wait.
const maxWaitingOfUser = 64

// Add reports whether a mapping is new here, and whether it waits now.
func (w *WaitingMappings) Add(m NewMapping, user int) (isNew, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key, n := mappingKey{m.PID, m.File}, 0
	for _, other := range w.list {
		if other.User == user {
			n++
		}
	}
	_, waits = w.list[key]
	if waits || n >= maxWaitingOfUser {
		return !waits, waits
	}
	if w.list == nil {
		w.list = make(map[mappingKey]WaitingMapping)
	}
	w.list[key] = WaitingMapping{m, user}
	return true, true
}

// Remove removes a mapping.
func (w *WaitingMappings) Remove(m NewMapping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.list, mappingKey{m.PID, m.File})
}

// All returns the mappings that wait.
func (w *WaitingMappings) All() []WaitingMapping {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.list))
}
