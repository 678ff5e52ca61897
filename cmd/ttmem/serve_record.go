package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// resumeInterval is how long after an error recording is tried again.
const resumeInterval = 10 * time.Second

// A serviceRecorder is the recording of a service. After an error it tries again from time to
// time. A nil one does nothing.
type serviceRecorder struct {
	*recorder
	err    error // why nothing is recorded at present
	tried  time.Time
	failed bool // something was not recorded
	// now is what health returns.
	now atomic.Pointer[string]
}

// newServiceRecorder is nil if nothing is recorded.
func newServiceRecorder(o recordOptions, state *aggregate.State) (*serviceRecorder, error) {
	o.existing, o.private = recording.RotateExisting, true
	of, err := newRecorder(o, state)
	if of == nil {
		return nil, err
	}
	r := &serviceRecorder{recorder: of}
	r.setHealth(service.RecordingOK)
	return r, nil
}

// health may be called by any goroutine.
func (r *serviceRecorder) health() string { return *r.now.Load() }

func (r *serviceRecorder) setHealth(health string) { r.now.Store(&health) }

// take takes an event.
func (r *serviceRecorder) take(e *event.Event) {
	if r == nil {
		return
	}
	r.add(e)
	if r.full() {
		r.note(r.flush())
	}
}

// pause is called between batches of events.
func (r *serviceRecorder) pause() {
	switch {
	case r == nil:
	case r.err == nil:
		r.note(r.flush())
	case time.Since(r.tried) >= resumeInterval:
		r.tried = time.Now()
		missed := r.file.Missed()
		err := r.file.Resume()
		if err == nil {
			r.events -= missed
			term.Warn(fmt.Sprintf("%s: recording goes on; %s could not be recorded", r.path, page.Count(missed, "event")))
		}
		r.note(err)
	}
}

// note takes the result of a write, and reports changes once.
func (r *serviceRecorder) note(err error) {
	health := service.RecordingOK
	if err != nil {
		health = errors.Unwrap(err).Error() // without the path, which not every user may know
	}
	if err != nil && health != r.health() {
		r.failed, r.tried = true, time.Now()
		term.Warn(fmt.Sprintf("%v; the service goes on, and tries to record again every %v", err, resumeInterval))
	}
	r.err = err
	r.setHealth(health)
}

// end ends the recording.
func (r *serviceRecorder) end(s *memory.Snapshot) {
	if r == nil {
		return
	}
	if err := r.close(s); err != nil {
		r.failed = true
		term.Warn(err.Error())
		return
	}
	text := r.summary(len(s.Processes) > 0)
	if r.isFile() {
		text += fmt.Sprintf("; `ttmem report %s` shows them", r.path)
	}
	term.Warn(text)
	if n := s.LostEvents; n > 0 {
		term.Warn(fmt.Sprintf("%s were lost; the report says why", page.Count(n, "event")))
	}
}
