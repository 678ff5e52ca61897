package main

import (
	"cmp"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"ttmem/aggregate/advise"
	"ttmem/cmd/ttmem/flags"
	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	page_advise "ttmem/cmd/ttmem/page/advise"
	"ttmem/cmd/ttmem/source"
	"ttmem/tracer/event"
)

func newAdvise() *cobra.Command {
	p := new(page_advise.Page)
	c := &cobra.Command{
		Use:   "advise FILE",
		Short: "Show which buffers are held after their last use",
		Long: `Shows, for the peaks of DRAM and L1, the buffers that no program run uses any more: the lines that
allocate them, the operation that uses them last, and how much lower the peak is if they are freed
there. Each answer is replayed, and is proved, or says why it is not.

Weights, caches and results are not judged. FILE is a recording, which is read several times.
docs/advise.md explains the page.`,
		Example: `  ttmem run -o model.ttmem -- python model.py
  ttmem advise model.ttmem
  ttmem advise model.ttmem -n 0
  ttmem advise model.ttmem --json | jq '.peaks[].all_freed'
  ttmem oom model.ttmem --free model.py:31`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("advise takes one recording: %s FILE; `ttmem run -o FILE -- COMMAND` makes one", c.CommandPath())
			}
			return nil
		},
		RunE:              func(c *cobra.Command, args []string) error { return runAdvise(c, p, args[0]) },
		ValidArgsFunction: source.CompleteRecordings,
	}
	flags.Limit(c, &p.Limit, listedSites)
	flags.Takes(c, flags.Color, flags.JSON)
	return c
}

func runAdvise(c *cobra.Command, p *page_advise.Page, path string) error {
	if err := flags.CheckLimit(p.Limit); err != nil {
		return err
	}
	if err := source.ReadOnce(path); err != nil {
		return err
	}
	var err error
	var read *source.Summary
	if p.Advice, read, err = adviceOf(&source.Recording{Path: path}); err != nil {
		return err
	}
	p.Notes = read.Notes
	if err := output.Print(p, flags.Format(c), page.NewSupplement(read.File.Clock()), "advice"); err != nil {
		return err
	}
	return read.Finish(nil)
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

// adviceUnasked is the advice of a recording for a view that shows more than that; nil if it takes too long.
func adviceUnasked(r *source.Recording) (*advise.Advice, error) {
	if source.ReadOnce(r.Path) != nil || isLarge(r.Path) {
		return nil, nil
	}
	a, _, err := adviceOf(r)
	return a, err
}

// mostSearched is the size of a recording that is replayed without being asked, in bytes: some 100,000 events with call stacks,
// in about a second.
const mostSearched = 1 << 20

// isLarge reports whether a recording is too large for that.
func isLarge(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > mostSearched
}
