package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/fit"
	"ttmem/cmd/ttmem/internal/page/oom"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/tracer/event"
)

// listedSites is how many call sites fit lists without -n.
const listedSites = 20

func newFit() *cobra.Command {
	var param string
	p := new(fit.Page)
	c := &cobra.Command{
		Use:   "fit A B [C] --param 1,2[,4]",
		Short: "Show the largest batch or sequence length that fits",
		Long: `Shows how call sites grow with a parameter of a program, such as its batch size or sequence
length, and the largest value that fits on the board, with the line that fails first.

A, B and C are recordings of the same program with the values of --param. Larger values are
extrapolated: what grows is assumed to grow linearly, and the allocations of the recording with
the largest value are replayed with their new sizes. docs/oom.md explains replay.`,
		Example: `  ttmem run -o one.ttmem -- python model.py --batch 1
  ttmem run -o two.ttmem -- python model.py --batch 2
  ttmem fit one.ttmem two.ttmem --param 1,2
  ttmem fit one.ttmem two.ttmem --param 1,2 --on p150
  ttmem fit one.ttmem two.ttmem --param 1,2 --json | jq .largest`,
		RunE: func(c *cobra.Command, args []string) error { return runFit(c, p, args, param) },
		ValidArgsFunction: func(c *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 2 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return source.CompleteRecordings(c, nil, text)
		},
	}
	c.Flags().StringVar(&param, "param", "", "the value of each recording: `N,N`")
	on := oom.Changes[0]
	c.Flags().StringArrayVar(&p.On, on.Flag, nil, on.Usage)
	flags.Complete(c, on.Flag, on.Values)
	flags.Complete(c, "param", nil)
	flags.Limit(c, &p.Limit, listedSites)
	flags.Takes(c, flags.Color, flags.JSON)
	return c
}

func runFit(c *cobra.Command, p *fit.Page, args []string, param string) error {
	values := strings.Split(param, ",")
	switch {
	case len(args) < 2 || len(args) > 3:
		return fmt.Errorf("fit takes two or three recordings: %s A B --param 1,2", c.CommandPath())
	case len(values) != len(args):
		return fmt.Errorf("--param %s: give a value for each of the %d recordings, such as --param 1,2,4", param, len(args))
	}
	if err := flags.CheckLimit(p.Limit); err != nil {
		return err
	}
	var failed bool
	for i, path := range args {
		value, err := strconv.Atoi(strings.TrimSpace(values[i]))
		if err != nil || value < 1 || value > fit.MostValue || slices.ContainsFunc(p.Files, func(f fit.File) bool { return f.Value == value }) {
			return fmt.Errorf("--param %s: give different numbers from 1 to %d, one for each recording", param, fit.MostValue)
		}
		if err := source.ReadOnce(path); err != nil {
			return errors.New("fit reads recordings several times: " + err.Error())
		}
		once := true
		p.Files = append(p.Files, fit.File{Path: path, Value: value, Play: func(handle func(*event.Event)) error {
			r := &source.Recording{Path: path, Whole: true, Quiet: !once}
			s, err := r.Watch(handle)
			if err == nil && once {
				p.Notes, failed, once = append(p.Notes, s.Notes...), failed || s.Failed, false
			}
			return err
		}})
	}
	if err := p.Read(); err != nil {
		return err
	}
	if err := output.Print(p, flags.Format(c), page.NewSupplement(page.Clock{}), "growth"); err != nil {
		return err
	}
	return (&source.Summary{Summary: moment.Summary{Notes: p.Notes, Failed: failed}}).Finish(nil)
}
