package main

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/report"
	"ttmem/cmd/ttmem/service"
	"ttmem/cmd/ttmem/session"
	"ttmem/cmd/ttmem/source"
)

func newReport() *cobra.Command {
	var o session.Options
	var pids []int
	c := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Show the report of a recording, or of what ttmem serve sees",
		Long: `Prints the summary of a recording: allocations that failed, what leaks, what the peak of each
region was made of, and the processes.

FILE is a recording; - is a recording on standard input. Without it the host's service
(ttmem serve) makes the report. docs/profiles.md explains flame graphs, pprof and folded
stacks, docs/events.md JSON.`,
		Example: `  ttmem report model.ttmem
  ttmem report model.ttmem -p 4242
  ttmem report model.ttmem --json | jq .devices
  ttmem report model.ttmem --flamegraph memory.html
  ttmem report model.ttmem --flamegraph memory.html --by owner
  ttmem report model.ttmem --pprof mem.pb.gz
  go tool pprof -top -cum -lines -show='\.py' -sample_index=peak_space mem.pb.gz
  ttmem report model.ttmem --folded memory.folded`,
		Args: func(c *cobra.Command, args []string) error {
			if n := c.ArgsLenAtDash(); n >= 0 {
				return source.RunsNone(c, args[n:])
			}
			if len(args) > 1 {
				return errors.New("one recording at a time: ttmem report model.ttmem")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			o.UTC = flags.WantsUTC(c)
			if err := flags.CheckPIDs(pids); err != nil {
				return err
			}
			if len(pids) > 1 {
				return errors.New("report takes one process, or shows all: give -p once")
			}
			if len(pids) == 1 {
				o.PID = pids[0]
			}
			if len(args) == 0 {
				return reportService(c, &o)
			}
			if c.Flags().Changed(flags.Socket) {
				return errors.New("a file and --socket: give one of them")
			}
			o.Source.File = args[0]
			return session.Report(&o)
		},
	}
	o.RegisterReport(c)
	flags.OnePID(c, &pids)
	flags.Takes(c, flags.Socket, flags.UTC)
	c.ValidArgsFunction = source.CompleteRecordings
	return c
}

// reportService prints the report of the host's service.
func reportService(c *cobra.Command, o *session.Options) error {
	for _, flag := range []string{"flamegraph", "pprof", "folded"} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("--%s is made of events, which a service does not keep: have it record (ttmem serve -o FILE) and give the file", flag)
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
	snapshot, err = o.Of(atOneTime(snapshot, state, os.Geteuid() == 0), "what the service sees")
	if err != nil {
		return err
	}
	how := report.Options{PID: o.PID, Live: !ended(snapshot, o.PID), Own: os.Geteuid() != 0, State: state.State, Clock: o.Source.Clock(), UTC: o.UTC}
	return output.Print(&report.Page{Snapshot: snapshot, Options: how}, o.Format, page.NewSupplement(how.Clock, snapshot), "report")
}

// ended reports whether the selected process has ended: it then has no present state.
func ended(of *memory.Snapshot, pid int) bool {
	return pid > 0 && !slices.ContainsFunc(of.Processes, func(p memory.Process) bool { return p.Exit == nil })
}

// atOneTime returns the service's snapshot with the figures of its later state, so that all
// figures belong to one moment. For root the state has everything. For other users it has their
// own processes; the totals of chips are only in the snapshot.
func atOneTime(snapshot *memory.Snapshot, s *source.State, root bool) *memory.Snapshot {
	of := s.Snapshot()
	now := *snapshot
	now.Processes, now.TimeNs = of.Processes, s.NowNs
	if !root {
		return &now
	}
	of.TimeNs, of.BeganNs, of.Stacks, of.Reading = s.NowNs, snapshot.BeganNs, snapshot.Stacks, snapshot.Reading
	return of
}
