package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/page"
	"ttmem/tracer/event"
)

const (
	// completionTime is for how long a completion may read a file.
	completionTime = 300 * time.Millisecond
	// completedMarks is how many names are offered.
	completedMarks = 100
)

// completeMoments completes the flag of a moment: with the words that always are, and the
// marks of the first file that is named.
func completeMoments(c *cobra.Command, flag string, words ...string) {
	_ = c.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		names := slices.Clone(words)
		if len(args) > 0 {
			names = append(names, marksOf(args[0])...)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// marksOf are the names of the marks of a file, as far as it can be read in a moment: a
// long one from its last checkpoint on, which tells the newest of those before.
func marksOf(path string) (names []string) {
	// a pipe can be read once, and waits for who writes
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	r, err := openRecorded(path)
	if err != nil {
		return nil
	}
	defer r.close()
	r.quiet = true
	if _, err := r.last(); err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), completionTime)
	defer cancel()
	// Damage ends it: what comes before is offered.
	_, _ = r.play(ctx, func(e *event.Event) {
		// a shell takes a name with blanks for several
		if e.Kind != event.Mark || e.Cause == "" || strings.ContainsAny(e.Cause, " \t") {
			return
		}
		if name := page.Clean(e.Cause); len(names) < completedMarks && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}, func() {})
	return names
}
