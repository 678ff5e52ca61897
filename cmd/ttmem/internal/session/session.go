// Package session traces: it turns a stream of events into a report and a recording.
package session

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/report"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// Options select what to trace and to record.
type Options struct {
	Source source.Options
	Record record.Options
	Format term.Format
}

// RegisterTrace adds the flags of a command that traces, and checks them.
func (o *Options) RegisterTrace(c *cobra.Command) {
	flags.Takes(c, flags.Color, flags.JSON)
	o.Record.Register(c)
	o.Source.Stacks.RegisterMore(c)
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := o.Source.Stacks.Check(); err != nil {
			return err
		}
		if err := o.Record.Check(c); err != nil {
			return err
		}
		o.Format = flags.Format(c)
		o.Source.Socket, _ = flags.SocketOf(c)
		return nil
	}
}

// session writes a stream of events.
type session struct {
	o      Options
	state  *aggregate.State
	record *record.Recorder // nil if not requested
	crash  *record.BlackBox // nil if not requested
	failed bool             // an output could not be written
	unsafe int              // call sites that warnUnsafe has named
	// useless ends a trace whose recording failed; nil if tracing continues
	useless func()
}

// newSession begins the output that the options name.
func newSession(o Options) (_ *session, err error) {
	s := &session{o: o, state: aggregate.New()}
	s.record, err = record.New(o.Record, s.state)
	switch {
	case err != nil && !o.Record.Unnamed:
		return nil, err
	case err != nil:
		term.Warn(fmt.Sprintf("nothing is recorded: %v with -o", err))
	}
	s.crash, err = record.NewBlackBox(o.Record, s.state, nil)
	return s, err
}

// handle takes an event.
func (s *session) handle(e *event.Event) {
	s.state.Complete(e)
	s.state.Apply(e)
	s.crash.Take(e)
	if s.record != nil {
		s.record.Add(e)
		if s.record.Full() {
			s.flush()
		}
	}
}

// maxUnsafe is how many call sites warnUnsafe names.
const maxUnsafe = 10

// warnUnsafe names new call sites whose buffers a replayed trace may have overwritten: the program may go on for
// hours with wrong results.
func (s *session) warnUnsafe() {
	for all := s.state.Unsafe(); s.unsafe < min(len(all), maxUnsafe); s.unsafe++ {
		u := &all[s.unsafe]
		term.Warn(fmt.Sprintf("PID %d: the replay of trace %d may have overwritten %s (%s of %s) of %s: allocated after its capture",
			u.PID, u.TraceID, page.Count(u.Count, "buffer"), page.Bytes(u.Bytes), u.Region, cmp.Or(page.Clean(name.Of(u.Stack.Frames()).String()), "an unknown line")))
	}
}

func (s *session) flush() {
	s.crash.Pause()
	s.warnUnsafe()
	if s.record == nil {
		return
	}
	if err := s.record.Flush(); err != nil {
		s.unrecorded()
		if s.useless != nil {
			term.Warn(err.Error())
			s.useless()
			return
		}
		term.Warn(fmt.Sprintf("%v; tracing goes on and is not recorded", err))
	}
}

// unrecorded handles the failure of the recording. It is an error if the user named the file.
func (s *session) unrecorded() {
	s.failed = s.failed || !s.o.Record.Unnamed
	s.record = nil
}

// end finishes the recording, and prints the report up to a time.
func (s *session) end(untilNs uint64, stacks *memory.Stacks, clock page.Clock) error {
	s.state.Advance(untilNs)
	s.state.Settle()
	snapshot := s.state.Snapshot()
	snapshot.Stacks = stacks
	s.crash.End()
	if s.record != nil {
		if err := s.record.Close(snapshot); err != nil {
			term.Warn(err.Error())
			s.unrecorded()
		}
	}
	all := &report.Page{Snapshot: snapshot, Options: report.Options{Clock: clock, State: s.state}}
	err := output.PrintTo(os.Stderr, all, s.o.Format, page.NewSupplement(clock, snapshot), "report")
	if errors.Is(err, unix.EPIPE) && !s.o.Format.JSON {
		err = nil // nobody reads standard error
	}
	if s.record != nil {
		s.recorded(snapshot)
	}
	return err
}

// recorded describes the recording. A file that the user did not name is removed if it is empty.
func (s *session) recorded(snapshot *memory.Snapshot) {
	if len(snapshot.Processes) == 0 && s.o.Record.Unnamed {
		_ = s.record.Remove()
		return
	}
	s.record.Describe(snapshot, !s.o.Format.JSON)
}

// traced returns the traced program, or the first of several, and its process; 0 means the whole
// host.
func (o *Options) traced(t *source.Tracing) (program string, pid int) {
	switch {
	case len(o.Source.Command) > 0:
		return record.ProgramName(o.Source.Command), t.CommandPID()
	case len(o.Source.PIDs) > 0:
		pid = o.Source.PIDs[0]
		return host.ThreadName(pid, pid), pid
	}
	return "", 0
}

// giveUp ends ttmem at once at a signal.
func giveUp(again <-chan os.Signal) {
	status := 128 + int((<-again).(unix.Signal))
	time.AfterFunc(time.Second, func() { os.Exit(status) }) // even if writing the message waits for a reader
	term.NewLine()
	term.Warn("interrupted again: ended at once; the rest is neither reported nor written")
	os.Exit(status)
}

// Trace writes the traced events until the end. The error has the exit status of the command, or
// failure if ttmem itself failed.
func Trace(o Options, failure int) error {
	term.OutliveReaders() // of the messages: the recording, and the exit status of a command, remain
	o.Source.DropPrivileges, o.Source.Written = true, o.Record.Written()
	t, err := o.Source.Trace()
	if err != nil {
		return err
	}
	defer t.Close()
	o.Record.Choose(o.traced(t))
	s, err := newSession(o)
	if err != nil {
		return err
	}
	go giveUp(t.Again)
	s.state.Begin(host.Now())
	if !t.OfCommand() && !o.Record.Unnamed {
		s.useless = t.Stop
	}
	clock := o.Source.Clock()
	t.Announce()
	err = t.Run(s.handle, s.flush)
	if t.Reading() {
		term.Warn("interrupted before the memory of processes was read: their existing buffers are missing")
		s.failed = true
	}
	err = errors.Join(err, s.end(host.Now(), t.StackCounts(), clock))
	switch {
	case t.Exit != 0 && err != nil:
		term.Warn(err.Error())
		fallthrough
	case t.Exit != 0:
		return term.ExitStatus(t.Exit)
	case err == nil && (s.failed || t.Failed):
		return term.ExitStatus(failure)
	}
	return err
}
