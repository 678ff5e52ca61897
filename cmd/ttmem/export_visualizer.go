package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/export/visualizer"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
)

// parseOps reads the value of --ops: A..B, A.., ..B or A. 0 stands for the first and the last one.
func parseOps(text string) (from, to int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	a, b, isRange := strings.Cut(text, "..")
	if !isRange {
		b = a
	}
	number := func(text string) int {
		if text == "" && isRange {
			return 0
		}
		n, failed := strconv.Atoi(text)
		if failed != nil || n < 1 {
			err = fmt.Errorf("--ops: give operations such as 100..200, 100.. or 7")
		}
		return n
	}
	from, to = number(a), number(b)
	if err == nil && to > 0 && to < from {
		err = fmt.Errorf("--ops %s: the last operation is before the first", text)
	}
	if from == 0 && to == 0 && err == nil {
		from = 1 // "..": all
	}
	return from, to, err
}

// play calls handle with the events of the recording, and the state after each.
func (x *exportJob) play(handle func(*event.Event, *aggregate.State)) (err error) {
	s := aggregate.New()
	x.summary, err = x.source.Watch(s.Completed(func(e *event.Event) { handle(e, s) }))
	return err
}

// writeVisualizer writes a report for TT-NN Visualizer. It reads the recording twice.
func writeVisualizer(x *exportJob) (string, error) {
	from, to, _ := parseOps(x.ops)
	var plan visualizer.Plan
	if err := x.play(plan.Event); err != nil {
		return "", err
	}
	all := plan.Operations()
	switch {
	case !plan.Stacks:
		return "", cmp.Or(x.source.Missing(), fmt.Errorf("%s has no call stacks, which show operations: record without --no-stacks, and with `ttmem run`", x.source.File))
	case from > all:
		return "", fmt.Errorf("--ops %s: there are %s", x.ops, numbered(all, "operation"))
	}
	private := 0 // source files
	w, clock := plan.Window(from, to), x.source.Clock()
	r, err := visualizer.New(x.out.Create, &plan, w, visualizer.Options{
		Name: strings.TrimSuffix(filepath.Base(x.source.File), ".ttmem"),
		Wall: func(ns uint64) time.Time {
			if !clock.Known() {
				return time.Time{}
			}
			return time.Unix(0, clock.Wall(ns)).UTC()
		},
		Source: func(path string, at time.Time) (string, bool) {
			text, err := source.PythonSource(path, at)
			if errors.Is(err, fs.ErrPermission) {
				private++
			}
			return text, err == nil
		},
	})
	if err != nil {
		return "", x.failed(err)
	}
	x.source.Quiet = true // progress was shown
	err = x.play(r.Event)
	if failed := r.Close(); failed != nil {
		err = cmp.Or(err, x.failed(failed))
	}
	if err != nil {
		return "", err
	}
	if w.To-w.From+1 < all && x.ops == "" {
		term.Warn(numbered(all, "operation") + " would be too many rows: the report has the last ones; choose others with --ops A..B")
	}
	if !w.Chunks && w.ChunkRows > 0 {
		term.Warn(fmt.Sprintf("left out the cores of buffers, up to %s: choose fewer operations with --ops A..B to include them", numbered(w.ChunkRows, "row")))
	}
	if r.Scattered > 0 {
		term.Warn(fmt.Sprintf("left out %s of buffers on single cores whose addresses differ", numbered(r.Scattered, "row")))
	}
	what := fmt.Sprintf("report of operations %s to %s of %s and %s", page.Grouped(w.From), page.Grouped(w.To), page.Grouped(all), numbered(r.Sources(), "source file"))
	if private > 0 {
		what += fmt.Sprintf(", without %s that not every user may read,", page.Grouped(private))
	}
	return what, nil
}

// numbered returns a number of things.
func numbered(n int, noun string) string { return page.Grouped(n) + " " + page.Plural(uint64(n), noun) }
