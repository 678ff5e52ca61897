package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/export/metrics"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/record"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// serveOptions are the flags of serve.
type serveOptions struct {
	socket      string
	http        string
	allowRemote bool
	tokenFile   string
	stacks      source.Stacks
	record      record.Options
	forPID      int // the process of a user for which sudo started it; 0: none
}

func newServe() *cobra.Command {
	var o serveOptions
	c := &cobra.Command{
		Use:   "serve [--socket PATH] [-o FILE]",
		Short: "Trace the whole host as a service for its users",
		Long: `Traces all processes of the host that use tt-metal, and answers users on a unix socket.

Users see their own processes, and the total of all others; root sees everything. With -o, it
also writes recordings, which only their owner can read. SIGTERM and Ctrl-C end the service.
docs/serve.md has the HTTP interface and a systemd unit.`,
		Example: `  ttmem serve
  ttmem serve -o /var/lib/ttmem/host.ttmem --max-size 1GiB --keep 5
  ttmem serve --http 127.0.0.1:9464 --token-file /etc/ttmem/token
  curl --unix-socket /run/ttmem.sock http://ttmem/v1/snapshot`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("serve takes no argument %q: it traces the whole host", args[0])
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		PreRunE: func(c *cobra.Command, _ []string) error {
			if o.http == "" && (o.allowRemote || o.tokenFile != "") {
				return errors.New("--allow-remote and --token-file need HTTP: give --http too")
			}
			if err := o.stacks.Check(); err != nil {
				return err
			}
			if o.record.Path == "" && (c.Flags().Changed("max-size") || c.Flags().Changed("keep")) {
				return errors.New("--max-size and --keep need a recording: give -o too")
			}
			return o.record.Check(c)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			o.socket, _ = flags.SocketOf(c)
			o.record.None = o.record.Path == ""
			return serve(o)
		},
	}
	f := c.Flags()
	flags.Takes(c, flags.Socket)
	f.StringVar(&o.http, "http", "", "also answer HTTP at `ADDR`, such as 127.0.0.1:9464: totals of each chip, and everything to clients with the token")
	f.BoolVar(&o.allowRemote, "allow-remote", false, "allow an address of --http that other hosts can reach; needs --token-file")
	f.StringVar(&o.tokenFile, "token-file", "", "use HTTPS, with the certificate FILE.crt, and show everything to clients that send the token in `FILE`")
	o.record.RegisterFile(c)
	o.stacks.RegisterKept(c)
	f.IntVar(&o.forPID, "for", 0, "end with the process `PID`, which asked sudo for this service")
	for _, name := range []string{"for", "full-stacks"} {
		_ = f.MarkHidden(name)
	}
	return c
}

func serve(o serveOptions) (err error) {
	if err := kernel.Check(); err != nil {
		return err
	}
	ends := []os.Signal{unix.SIGTERM, unix.SIGINT}
	if o.forPID != 0 {
		ends = ends[:1]
		signal.Ignore(unix.SIGINT, unix.SIGQUIT) // of the terminal: they are for the process
	}
	ctx, stop := signal.NotifyContext(context.Background(), ends...)
	defer stop()
	ctx, end := context.WithCancel(ctx)
	defer end()
	if o.forPID != 0 {
		go func() {
			host.AwaitEnd(o.forPID)
			end()
		}()
	}
	if o.forPID != 0 {
		defer func() { _ = unix.Rmdir(filepath.Dir(o.socket)) }() // which ttmem made for it
	}
	term.ServiceLog(end) // as at SIGTERM: SIGPIPE would leave the socket, and recordings without an end
	signal.Ignore(unix.SIGHUP)
	term.OutliveReaders()
	socket, err := service.Inherited()
	if socket == nil && err == nil {
		socket, err = service.Listen(o.socket)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, socket.Close()) }()
	tcp, err := o.listenTCP()
	if err != nil {
		return err
	}
	if tcp != nil {
		defer tcp.Close()
	}
	o.dropPrivileges(socket)
	limiter := term.NewLimiter(term.Warn)
	what := tracer.Options{Warn: limiter.Warn}
	o.stacks.Apply(&what)
	source.BoundMemory()
	t, err := tracer.New(what)
	if err != nil {
		return err
	}
	defer t.Close()
	s, err := newHostService(o.record, limiter)
	if err != nil {
		return err
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	answers := service.Options{
		Version: buildVersion(), Stacks: func() *memory.Stacks { return source.StackCounts(t) },
		Reading: t.Reading, Warn: term.Warn,
		Chip: func(id int) metrics.Chip {
			c := host.ChipOf(id)
			return metrics.Chip{Board: c.Board, PCI: c.PCI, UniqueID: c.UniqueID}
		},
		Owners:         t.FindOwners,
		SearchFor:      t.SearchFor,
		HandledNs:      t.HandledNs.Load,
		PrepareFile:    t.PrepareOpened,
		PrepareCommand: t.PrepareCommand,
		Mark:           func(name string, v service.Viewer, sharer int) error { t.Mark(name, v.UID, sharer); return nil },
		Documents: func(s *aggregate.State) (map[string]json.RawMessage, error) {
			return pageDocuments(s, &source.Summary{Of: "this host", Live: true}, nil)
		},
	}
	if s.record != nil {
		answers.Recording = s.record.Health
	}
	server := service.NewServer(s.hub, answers)
	defer server.Close()
	serving := func(serve func() error) {
		go func() {
			if err := serve(); err != nil {
				cancel(fmt.Errorf("answering: %w", err))
			}
		}()
	}
	serving(func() error { return server.ServeUnix(socket) })
	where := []string{socket.Path()}
	if tcp != nil {
		where = append(where, tcp.URLs()...)
		serving(func() error { return server.ServeTCP(tcp) })
	}
	term.Warn("tracing every process that uses tt-metal; listening at " + strings.Join(where, " and "))
	if err := service.Notify("READY=1"); err != nil {
		term.Warn(fmt.Sprintf("notifying systemd: %v", err))
	}

	err = t.Run(ctx, s.take, s.pause)
	_ = service.Notify("STOPPING=1") // systemd does not need it
	if cause := context.Cause(ctx); err == nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	server.Close()
	s.end(source.StackCounts(t))
	if err == nil && s.record != nil && s.record.Failed {
		return term.ExitStatus(1)
	}
	return err
}

// dropPrivileges keeps what tracing needs, recording, and removing the socket at the end.
func (o *serveOptions) dropPrivileges(socket *service.Socket) {
	written := o.record.Written()
	if socket.Made() {
		written = append(written, socket.Path())
	}
	var others []int
	if o.forPID != 0 {
		others = append(others, unix.CAP_FOWNER) // to remove a user's folder from one like /tmp
	}
	if err := kernel.DropPrivileges(written, others...); err != nil {
		term.Warn(err.Error())
	}
}

// listenTCP returns the listener of --http; nil without --http.
func (o *serveOptions) listenTCP() (l *service.TCP, err error) {
	if o.http == "" {
		return nil, nil
	}
	var secret *service.Secret
	if o.tokenFile != "" {
		if secret, err = service.ReadSecret(o.tokenFile); err != nil {
			return nil, err
		}
	}
	return service.ListenTCP(o.http, o.allowRemote, secret, term.Warn)
}

// A hostService takes the events of the host: it keeps the hub up to date, records and logs.
type hostService struct {
	hub     *service.Hub
	state   *aggregate.State  // the hub's
	record  *record.Service   // nil if nothing is recorded
	crash   *record.BlackBox  // nil without --crash-dir
	log     *term.Limiter     // of lines about processes
	lost    map[string]losses // by cause, since the last report
	lostAt  time.Time
	started time.Time
}

// losses counts lost events, and has their processes.
type losses struct {
	count uint64
	pids  map[int]bool // 0 if not known
}

func newHostService(o record.Options, limiter *term.Limiter) (*hostService, error) {
	state := aggregate.New()
	state.Begin(host.Now())
	s := &hostService{
		hub: service.NewHub(state), state: state, log: limiter,
		lost: make(map[string]losses), started: time.Now(),
	}
	var err error
	if s.record, err = record.NewService(o, state); err == nil {
		s.crash, err = record.NewBlackBox(o, state, s.hub.Newest)
	}
	return s, err
}

func (s *hostService) take(e *event.Event) {
	s.hub.Apply(e)
	s.record.Take(e)
	s.crash.Take(e)
	switch e.Kind {
	case event.ProcessStart, event.ProcessExit: // what starts may have been another program
		if p, sharer := s.state.Ended(e.PID); p != nil && p.Exit.TimeNs == e.TimeNs {
			s.log.Line(sharer, exitLine(p))
		}
		if e.Kind == event.ProcessStart && !e.Reread { // else it only adds the command line
			s.log.Line(e.CountsTo(), startLine(e))
		}
	case event.Lost:
		l := s.lost[e.Cause]
		if l.pids == nil {
			l.pids = make(map[int]bool)
		}
		l.pids[e.PID] = true
		s.lost[e.Cause] = losses{l.count + e.Count, l.pids}
	case event.Reread:
		s.log.Warn(host.NoUser, fmt.Sprintf("figures of PID %d are right again: its memory was read", e.PID))
	}
}

// lostInterval is the minimum time between two reports of lost events.
const lostInterval = 10 * time.Second

// pause is called between batches of events.
func (s *hostService) pause() {
	s.hub.Flush()
	s.record.Pause()
	s.crash.Pause()
	if len(s.lost) > 0 && time.Since(s.lostAt) >= lostInterval {
		s.reportLost()
	}
}

func (s *hostService) reportLost() {
	for _, cause := range slices.Sorted(maps.Keys(s.lost)) {
		l := s.lost[cause]
		events := "lost " + page.Count(l.count, "event")
		if l.pids[0] {
			s.log.Warn(host.NoUser, fmt.Sprintf("%s: %s; totals may be wrong from now on", events, cause))
			continue
		}
		names := page.Each(slices.Sorted(maps.Keys(l.pids)), strconv.Itoa)
		s.log.Warn(host.NoUser, fmt.Sprintf("%s of PID %s: %s; their figures may be wrong from now on", events, page.Some(names, "process"), cause))
	}
	clear(s.lost)
	s.lostAt = time.Now()
}

// end ends the recording, and logs a summary.
func (s *hostService) end(stacks *memory.Stacks) {
	s.reportLost()
	snapshot := *s.state.Snapshot()
	snapshot.Stacks = stacks
	s.record.End(&snapshot)
	s.crash.End()
	s.log.End()
	running, exited, lost := s.state.Counts()
	term.Warn(summaryLine(time.Since(s.started), uint64(running)+exited, lost))
}

// summaryLine is the last line of the log.
func summaryLine(took time.Duration, processes, lost uint64) string {
	return fmt.Sprintf("ended after %s: %s traced, %s lost", page.Seconds(uint64(took)), page.Count(processes, "process"), page.Count(lost, "event"))
}

// logCommand is the maximum length of a command line in the log.
const logCommand = 120

// startLine reports a newly traced process.
func startLine(e *event.Event) string {
	start := e.Started()
	command := cmp.Or(page.Clean(start.Command), page.Clean(e.Comm), page.UnknownCommandLine)
	line := fmt.Sprintf("tracing PID %d of user %d: %s", e.PID, e.UID, page.Truncate(command, logCommand, "..."))
	if start.Release != "" {
		line += "; ttnn " + page.Clean(start.Release)
	}
	if start.AttachedLate {
		line += "; attached late"
	}
	return line
}

// exitLine reports a process that ended, and the memory on all its chips that it did not free itself.
func exitLine(p *memory.Process) string {
	line := fmt.Sprintf("PID %d ended", p.PID)
	if p.Exit.Status != nil {
		switch status := unix.WaitStatus(*p.Exit.Status); {
		case status.Signaled():
			line += " by " + unix.SignalName(status.Signal())
		case status.Exited() && status.ExitStatus() != 0:
			line += fmt.Sprintf(" with status %d", status.ExitStatus())
		}
	}
	if len(p.Unfreed) == 0 {
		return line + "; everything was freed"
	}
	for _, left := range []struct {
		reason event.Reason
		text   string
	}{{event.ReasonProcessExit, "; unfreed: "}, {event.ReasonDeviceClose, "; freed by closing the device: "}} {
		var parts []string
		for i := range p.Unfreed {
			if l := &p.Unfreed[i]; l.Reason == left.reason.String() {
				parts = append(parts, fmt.Sprintf("%s of %s", page.Bytes(l.AllocatedBytes), l.Region))
			}
		}
		if parts != nil {
			line += left.text + strings.Join(parts, ", ")
		}
	}
	return line
}
