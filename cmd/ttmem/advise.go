package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ttmem/aggregate/advise"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	page_advise "ttmem/cmd/ttmem/internal/page/advise"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
)

func newAdvise() *cobra.Command {
	var o viewOptions
	c := &cobra.Command{
		Use:   "advise [FILE]",
		Short: "Show which buffers are held after their last use",
		Long: `Shows, for the peaks of DRAM and L1, the buffers that no program run uses any more: the lines that
allocate them, the operation that uses them last, and how much lower the peak is if they are freed
there. Each answer is replayed, and is proved, or says why it is not.

FILE is a recording, which is read several times. Without FILE, it is what the host's service
(ttmem serve) has recorded. Weights, caches and results are not judged, and neither is what was
allocated before that. docs/advise.md explains the page.`,
		Example: `  ttmem run -o model.ttmem -- python model.py
  ttmem advise model.ttmem
  ttmem advise -p 4242
  ttmem advise model.ttmem -n 0
  ttmem advise model.ttmem --json | jq '.peaks[].all_freed'
  ttmem oom model.ttmem --free model.py:31`,
		PreRunE: o.take,
		RunE:    func(*cobra.Command, []string) error { return runAdvise(&o) },
	}
	o.source.Register(c)
	flags.Limit(c, &o.n, listedSites)
	flags.Takes(c, flags.Color, flags.JSON)
	return c
}

func runAdvise(o *viewOptions) error {
	if err := flags.CheckLimit(o.n); err != nil {
		return err
	}
	r, p := o.source.Recording(), &page_advise.Page{Limit: o.n}
	if o.source.File == "" {
		past, closing, err := adviceSource(o)
		if err != nil {
			return err
		}
		defer closing()
		r = past
	} else if err := source.ReadOnce(r.Path); err != nil {
		return err
	}
	var err error
	var read *source.Summary
	if p.Advice, read, err = adviceOf(r); err != nil {
		return err
	}
	if p.Runs == 0 && len(p.Peaks) == 0 && len(o.source.PIDs) > 0 {
		if err := checkRecorded(r, o.source.PIDs); err != nil {
			return err
		}
	}
	if begin, err := r.Begin(); err == nil && o.source.File == "" {
		read.Notes = append(read.Notes, "the advice is of the last "+page.Seconds(read.EndNs-min(read.EndNs, begin.TimeNs))+", which the service has recorded")
	}
	p.Notes = read.Notes
	if err := output.Print(p, o.format, page.NewSupplement(source.Clock(read.File)), "advice"); err != nil {
		return err
	}
	return read.Finish(nil)
}

// adviceSource returns what the service has recorded, and a function that frees it.
func adviceSource(o *viewOptions) (*source.Recording, func() error, error) {
	client, err := service.Dial(o.source.Socket)
	if errors.Is(err, service.ErrNone) {
		return nil, nil, fmt.Errorf("%w, or give a recording: `ttmem run -o FILE -- COMMAND` or `ttmem attach -p PID -o FILE` makes one", err)
	}
	if err != nil {
		return nil, nil, err
	}
	client.Close()
	return o.source.Past()
}

// checkRecorded returns an error if a process is not in a recording.
func checkRecorded(r *source.Recording, pids []int) error {
	all := &source.Recording{Path: r.Path, Name: r.Name}
	end, _, err := all.End()
	if err != nil {
		return err
	}
	return source.CheckPIDs(pids, end.Totals(), source.In(cmp.Or(r.Name, r.Path)))
}

// adviceOf returns the advice of a recording, which is read several times.
func adviceOf(r *source.Recording) (a *advise.Advice, read *source.Summary, err error) {
	r.Whole = true
	a, err = advise.Of(func(handle func(*event.Event)) error {
		s, err := r.Watch(handle)
		read, r.Quiet = cmp.Or(read, s), true
		return err
	})
	return a, read, err
}

// adviceUnasked is the advice of a recording for a view that shows more than that; nil if it takes too long. A file that is
// damaged at its beginning has none, which is no reason to show nothing.
func adviceUnasked(r *source.Recording) (*advise.Advice, error) {
	if source.ReadOnce(r.Path) != nil || isLarge(r.Path) {
		return nil, nil
	}
	a, _, err := adviceOf(r)
	switch {
	case errors.Is(err, term.ErrInterrupted):
		return nil, err
	case err != nil:
		return nil, nil
	}
	return a, nil
}

// mostSearched is the size of a recording that is replayed without being asked, in bytes: some 100,000 events with call stacks,
// in about a second.
const mostSearched = 1 << 20

// isLarge reports whether a recording is too large for that.
func isLarge(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > mostSearched
}
