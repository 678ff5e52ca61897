package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

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
	var o sessionOptions
	var pids []int
	c := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Show the report of a recording, or of what ttmem serve sees",
		Long: `Prints the summary of a recording: allocations that failed, what leaks, what the peak of each
region was made of, and the processes.

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
			o.utc = flags.WantsUTC(c)
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
			o.source.File = args[0]
			if err := o.source.CheckUTC(o.utc); err != nil {
				return err
			}
			return showReport(&o)
		},
	}
	o.register(c)
	o.exports.Register(c)
	flags.PIDs(c, &pids)
	flags.Takes(c, flags.Socket, flags.UTC)
	c.ValidArgsFunction = source.CompleteRecordings
	return c
}

// reportService prints what the host's service sees.
func reportService(c *cobra.Command, o *sessionOptions) error {
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
	how := report.Options{PID: o.pid, Live: !ended(snapshot, o.pid), Own: os.Geteuid() != 0, State: state.State, Clock: o.source.Clock(), UTC: o.utc}
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
		return writeJSON(func(w io.Writer) error { return report.WriteJSON(w, snapshot, how) }, how.Clock)
	}
	return report.Write(to, snapshot, term.LayoutFor(to), how)
}

// showReport makes a report, and the files that flags name, from a file.
func showReport(o *sessionOptions) error {
	// before anything is opened for writing
	if err := o.checkOutputs(); err != nil {
		return err
	}
	if source.IsPrivate(o.source.File) {
		output.KeepPrivate()
	}
	s, err := newSession(*o)
	if err != nil {
		return err
	}
	defer s.close()
	o.source.StateOnly = s.events == nil && s.export == nil && o.pid == 0
	first := true
	w, err := o.source.Watch(func(e *event.Event) {
		if first { // a pipe says when it was written once it is read
			first = false
			s.setClock(o.source.Clock())
		}
		s.handle(e)
	})
	if err != nil {
		return err
	}
	s.state.Begin(w.File.BeganNs)
	if s.export != nil {
		s.export.Options.Begun = w.File.Created
	}
	to := os.Stdout
	if o.takesStdout() {
		to = os.Stderr
	}
	err = s.end(w.EndNs, w.File.Stacks(), to, report.Options{PID: o.pid, Older: w.File.Older(), UTC: o.utc})
	status := finish(w, nil)
	if err == nil && s.failed {
		return term.ExitStatus(1)
	}
	return cmp.Or(err, status)
}

// checkOutputs is an error if writing would destroy the file that is read, under whatever
// name.
func (o *sessionOptions) checkOutputs() error {
	path := o.source.File
	in, err := os.Stat(path)
	if err != nil || !in.Mode().IsRegular() {
		return nil
	}
	if out, err := os.Stdout.Stat(); err == nil && os.SameFile(in, out) {
		return fmt.Errorf("standard output is %s, the file that is read: write to another", path)
	}
	if t := o.targetOf(in); t != nil {
		return fmt.Errorf("%s %s is the file that is read: name another", t.Flag, t.Path)
	}
	return nil
}

// takesStdout reports whether a flag names standard output.
func (o *sessionOptions) takesStdout() bool {
	out, err := os.Stdout.Stat()
	return err == nil && o.targetOf(out) != nil
}

// targetOf is the target that is a file, under whatever name; nil if none is.
func (o *sessionOptions) targetOf(file os.FileInfo) *output.ExportTarget {
	for _, t := range append(o.exports.Targets(), output.ExportTarget{Flag: "--events", Path: o.output.events}) {
		info, err := os.Stat(t.Path)
		if t.Path == "-" {
			info, err = os.Stdout.Stat()
		}
		if err == nil && os.SameFile(info, file) {
			return &t
		}
	}
	return nil
}
