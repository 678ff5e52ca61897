package record

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
)

// resumeInterval is the time after an error until recording is tried again.
const resumeInterval = 10 * time.Second

// A Service is the recording of a service. After an error it tries again from time to time. A nil
// Service does nothing.
type Service struct {
	*Recorder
	err   error // why nothing is recorded at present
	tried time.Time
	// Failed is true if something was not recorded.
	Failed bool
	// now is the result of Health.
	now atomic.Pointer[string]
}

// NewService returns nil if nothing is recorded.
func NewService(o Options, state *aggregate.State) (*Service, error) {
	o.rotate, o.Private = true, true
	of, err := New(o, state)
	if of == nil {
		return nil, err
	}
	r := &Service{Recorder: of}
	r.setHealth(service.RecordingOK)
	return r, nil
}

// Health returns the state of the recording. It is safe for concurrent use.
func (r *Service) Health() string { return *r.now.Load() }

func (r *Service) setHealth(health string) { r.now.Store(&health) }

// Take takes an event.
func (r *Service) Take(e *event.Event) {
	if r == nil {
		return
	}
	r.Add(e)
	if r.Full() {
		r.note(r.Flush())
	}
}

// Pause is called between batches of events.
func (r *Service) Pause() {
	switch {
	case r == nil:
	case r.err == nil:
		r.note(r.Flush())
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

// note takes the result of a write, and reports each change once.
func (r *Service) note(err error) {
	health := service.RecordingOK
	if err != nil {
		health = "the recording cannot be written" // without the path, which not every user may know
		if cause := errors.Unwrap(err); cause != nil {
			health = cause.Error()
		}
	}
	if err != nil && health != r.Health() {
		r.Failed, r.tried = true, time.Now()
		term.Warn(fmt.Sprintf("%v; tracing goes on, and ttmem tries to record again every %v", err, resumeInterval))
	}
	r.err = err
	r.setHealth(health)
}

// End ends the recording.
func (r *Service) End(s *memory.Snapshot) {
	if r == nil {
		return
	}
	if err := r.Close(s); err != nil {
		r.Failed = true
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
