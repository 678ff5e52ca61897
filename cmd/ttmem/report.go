package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/source"
	"ttmem/cmd/ttmem/term"
	"ttmem/tracer/event"
)

func newReport() *cobra.Command {
	var o reportCommand
	var pids []int
	c := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Show the report of a recording, or of what ttmem serve sees",
		Long: `Prints how much of each chip's memory the processes of a recording used, at the peak and at
the end.

FILE is a recording, or a file of ttmem run --events; - is a recording on standard input.
Without it the host's service (ttmem serve) makes the report. docs/profiles.md explains flame
graphs, pprof and folded stacks, docs/events.md events and JSON.`,
		Example: `  ttmem report model.ttmem
  ttmem report model.ttmem -p 4242
  ttmem report model.ttmem --json | jq .devices
  ttmem report model.ttmem --flamegraph memory.html
  ttmem report model.ttmem --pprof memory.pb.gz
  go tool pprof -top -cum -lines -show='\.py' -sample_index=peak_space memory.pb.gz
  ttmem report model.ttmem --folded memory.folded --folded-value live-bytes`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("one recording at a time: ttmem report model.ttmem")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			for _, o.pid = range pids {
				if o.pid <= 0 {
					return fmt.Errorf("-p %d: not a process id", o.pid)
				}
			}
			if len(pids) > 1 {
				return errors.New("report takes one process, or shows all: give -p once")
			}
			if len(args) == 0 {
				return reportService(c, &o)
			}
			if c.Flags().Changed(flags.Socket) {
				return errors.New("a file and --socket: give one of them")
			}
			return showReport(&o, args[0])
		},
	}
	o.register(c)
	o.exports.Register(c)
	flags.PIDs(c, &pids)
	flags.Takes(c, flags.Socket)
	c.ValidArgsFunction = source.CompleteRecordings
	return c
}

// A reportCommand is the options of report.
type reportCommand struct {
	sessionOptions
	pid int // 0: of all
}

// of is the selected part of the snapshot from a place.
func (o *reportCommand) of(snapshot *memory.Snapshot, from string) (*memory.Snapshot, error) {
	if o.pid == 0 {
		return snapshot, nil
	}
	one := analyze.ForProcess(snapshot, o.pid)
	if one == nil {
		return nil, fmt.Errorf("-p %d: no such process in %s; `ttmem report` without -p lists the processes", o.pid, from)
	}
	return one, nil
}

// reportService prints what the host's service sees.
func reportService(c *cobra.Command, o *reportCommand) error {
	for _, flag := range []string{"events", "flamegraph", "pprof", "folded"} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("--%s is made of events, which a service does not keep: have it record (ttmem serve --record FILE) and give the file", flag)
		}
	}
	socket, _ := flags.SocketOf(c)
	client, err := service.Dial(socket)
	if errors.Is(err, service.ErrNone) {
		return fmt.Errorf("%w, or give a recording: ttmem report FILE", err)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	snapshot, err := client.Snapshot(c.Context())
	if err != nil {
		return err
	}
	state, err := source.ServiceState(c.Context(), client, socket)
	if err != nil {
		return err
	}
	snapshot, err = o.of(atOneTime(snapshot, state, os.Geteuid() == 0), "what the service sees")
	if err != nil {
		return err
	}
	how := report.Options{PID: o.pid, Live: !ended(snapshot, o.pid), Own: os.Geteuid() != 0}
	return printReport(os.Stdout, snapshot, o.output.json, how)
}

// ended reports whether the selected process has ended: it has no present state.
func ended(of *memory.Snapshot, pid int) bool {
	return pid > 0 && !slices.ContainsFunc(of.Processes, func(p memory.Process) bool { return p.Exit == nil })
}

// atOneTime is the service's snapshot with the figures of the state that it reported
// afterwards, so that all are of one moment. To root the state has everything. To others it
// has their own processes: what all users have of a chip is only in the snapshot.
func atOneTime(snapshot *memory.Snapshot, s *source.State, root bool) *memory.Snapshot {
	of := s.WithHolders(s.Snapshot())
	now := *snapshot
	now.Processes, now.TimeNs = of.Processes, s.NowNs
	if !root {
		return &now
	}
	of.TimeNs, of.BeganNs, of.Stacks, of.Reading = s.NowNs, snapshot.BeganNs, snapshot.Stacks, snapshot.Reading
	return of
}

// printReport prints a report.
func printReport(to *os.File, snapshot *memory.Snapshot, asJSON bool, how report.Options) error {
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(snapshot)
	}
	return report.Write(to, snapshot, term.LayoutFor(to), how)
}

// showReport makes a report, and the files that flags name, from a file.
func showReport(o *reportCommand, path string) error {
	// before anything is opened for writing
	if err := checkOutputs(o.sessionOptions, path); err != nil {
		return err
	}
	f, err := source.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.Private {
		output.KeepPrivate()
	}
	var lines *output.Events
	if o.output.events != "" {
		if lines, err = output.CopyEvents(o.output.events); err != nil {
			return err
		}
	}
	defer lines.Discard()
	x, err := output.NewExporter(o.exports)
	if err != nil {
		return err
	}
	defer x.Close()
	if x != nil {
		x.Options.Begun = f.Created
	}

	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	var failure error // of lines
	if lines == nil && x == nil {
		if err := f.StateOnly(); err != nil {
			return err
		}
	}
	state := aggregate.New()
	state.Begin(f.BeganNs)
	var only source.Options
	profiled := state
	if o.pid > 0 {
		only.PIDs = []int{o.pid}
		profiled = aggregate.New() // of this process only
	}
	if x != nil {
		profiled.KeepSites()
	}
	events, damage := f.Play(reading, source.Completed(state, only.Selected(func(e *event.Event) {
		if lines != nil && failure == nil {
			lines.Add(e)
			if lines.Full() {
				if failure = lines.Flush(); failure != nil {
					cancel()
				}
			}
		}
		if x != nil && profiled != state {
			profiled.Apply(e)
		}
	})))
	switch {
	case ctx.Err() != nil:
		return term.ErrInterrupted
	case failure != nil:
		return failure
	case damage != nil && events == 0:
		return damage
	case damage != nil:
		term.Warn(damage.Error())
	case f.NoEnd() != "":
		term.Warn(f.NoEnd())
	}
	if lines != nil {
		if err := lines.Close(); err != nil {
			return err
		}
	}
	state.Advance(f.EndNs())
	snapshot := state.WithHolders(state.Snapshot())
	snapshot.Stacks = f.Stacks()
	if snapshot, err = o.of(snapshot, path); err != nil {
		return err
	}
	to := os.Stdout
	if o.takesStdout() {
		to = os.Stderr
	}
	if err := printReport(to, snapshot, o.output.json, report.Options{PID: o.pid, Older: f.Older()}); err != nil {
		return err
	}
	if x != nil && !x.Write(profiled.Profile()) {
		return term.ExitStatus(1)
	}
	// to be cut short is no damage: its writer was killed, or its disk was full
	if damage != nil && !errors.Is(damage, io.ErrUnexpectedEOF) {
		return term.ExitStatus(1)
	}
	return nil
}

// checkOutputs is an error if writing would destroy the file that is read, under whatever
// name.
func checkOutputs(o sessionOptions, path string) error {
	in, err := os.Stat(path)
	if err != nil || !in.Mode().IsRegular() {
		return nil
	}
	if out, err := os.Stdout.Stat(); err == nil && os.SameFile(in, out) {
		return fmt.Errorf("standard output is %s, the file that is read: write to another", path)
	}
	targets := append(o.exports.Targets(), output.ExportTarget{Flag: "--events", Path: o.output.events})
	for _, t := range targets {
		if out, err := os.Stat(t.Path); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("%s %s is the file that is read: name another", t.Flag, t.Path)
		}
	}
	return nil
}

// takesStdout reports whether a flag names standard output.
func (o *sessionOptions) takesStdout() bool {
	out, err := os.Stdout.Stat()
	if err != nil {
		return false
	}
	for _, t := range append(o.exports.Targets(), output.ExportTarget{Path: o.output.events}) {
		if t.Path == "-" {
			return true
		}
		if info, err := os.Stat(t.Path); err == nil && os.SameFile(info, out) {
			return true
		}
	}
	return false
}
