package host

import (
	"maps"
	"slices"
	"sync"
)

// WaitingMappings are mappings that wait for something, at most so many of each user.
type WaitingMappings struct {
	MostOfUser int

	mu     sync.Mutex
	list   map[mappingKey]WaitingMapping
	ofUser map[int]int
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

// Add reports whether a mapping is new here, and whether it waits now.
func (w *WaitingMappings) Add(m NewMapping, user int) (isNew, waits bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := mappingKey{m.PID, m.File}
	_, waits = w.list[key]
	if waits || w.ofUser[user] >= w.MostOfUser {
		return !waits, waits
	}
	if w.list == nil {
		w.list, w.ofUser = make(map[mappingKey]WaitingMapping), make(map[int]int)
	}
	w.list[key] = WaitingMapping{m, user}
	w.ofUser[user]++
	return true, true
}

// Remove removes a mapping.
func (w *WaitingMappings) Remove(m NewMapping) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := mappingKey{m.PID, m.File}
	old, waits := w.list[key]
	if !waits {
		return
	}
	delete(w.list, key)
	if w.ofUser[old.User]--; w.ofUser[old.User] == 0 {
		delete(w.ofUser, old.User)
	}
}

// All returns the mappings that wait.
func (w *WaitingMappings) All() []WaitingMapping {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Values(w.list))
}
