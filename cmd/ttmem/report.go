package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/report"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
)

func newReport() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Show the report of a recording, or of the host's service",
		Long: `Prints the summary of a recording: failed allocations, leaks, the contents of each region's peak,
and the processes.

FILE is a recording; - is a recording on standard input. Without FILE, the report is of the host's
service (ttmem serve). docs/events.md explains the JSON. ttmem html draws flame graphs.`,
		Example: `  ttmem report model.ttmem
  ttmem report model.ttmem -p 4242
  ttmem report model.ttmem --json | jq .devices`,
		PreRunE: o.take,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(o.source.PIDs) > 1 {
				return errors.New("report takes at most one process: give -p once")
			}
			if o.source.File == "" {
				return reportService(c, &o)
			}
			return reportFile(&o)
		},
	}
	flags.OnePID(c, &o.source.PIDs)
	flags.Takes(c, flags.Color, flags.JSON, flags.Socket, flags.UTC)
	c.ValidArgsFunction = source.CompleteRecordings
	return c
}

// reportFile prints the report of a recording.
func reportFile(o *viewOptions) error {
	file := source.Recording{Path: o.source.File, Whole: len(o.source.PIDs) > 0}
	state := aggregate.New()
	how := report.Options{State: state, UTC: o.utc}
	handle := func(*event.Event) {}
	if file.Whole {
		how.State = aggregate.New()
		handle = moment.Selected(o.source.PIDs, how.State.Apply)
	}
	w, err := file.Watch(state.Completed(handle))
	if err != nil {
		return err
	}
	state.Begin(w.File.BeganNs)
	state.Advance(w.EndNs)
	state.Settle()
	snapshot := state.Snapshot()
	snapshot.Stacks = w.File.Stacks()
	if snapshot, err = o.reported(snapshot, o.source.File, &how); err != nil {
		return err
	}
	if how.Advice, err = adviceUnasked(&source.Recording{Path: o.source.File, PIDs: o.source.PIDs, Quiet: true}); err != nil {
		return err
	}
	how.Older, how.Clock, how.CutShort = w.File.Older(), source.Clock(w.File), w.Cut
	err = output.Print(&report.Page{Snapshot: snapshot, Options: how}, o.format, page.NewSupplement(how.Clock, snapshot), "report")
	return cmp.Or(err, w.Finish(nil))
}

// reported returns the selected part of the snapshot of a place.
func (o *viewOptions) reported(snapshot *memory.Snapshot, place string, how *report.Options) (*memory.Snapshot, error) {
	if len(o.source.PIDs) == 0 {
		return snapshot, nil
	}
	how.PID = o.source.PIDs[0]
	one := analyze.ForProcess(snapshot, how.PID)
	if one == nil {
		return nil, fmt.Errorf("-p %d: no such process in %s; `ttmem report` without -p lists the processes", how.PID, place)
	}
	return one, nil
}

// reportService prints the report of the host's service.
func reportService(c *cobra.Command, o *viewOptions) error {
	client, err := service.Dial(o.source.Socket)
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
	state, err := source.ServiceState(c.Context(), client, o.source.Socket)
	if err != nil {
		return err
	}
	how := report.Options{Own: os.Geteuid() != 0, State: state.State, Clock: o.source.Clock(), UTC: o.utc}
	if how.Own {
		if err := source.CheckPIDs(o.source.PIDs, state.Totals(), state.Of); err != nil {
			return err
		}
	}
	snapshot, err = o.reported(atOneTime(snapshot, state, !how.Own), "what the service sees", &how)
	if err != nil {
		return err
	}
	how.Live = !ended(snapshot, how.PID)
	return output.Print(&report.Page{Snapshot: snapshot, Options: how}, o.format, page.NewSupplement(how.Clock, snapshot), "report")
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
