package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// report prints figures with their goals.
type report struct {
	w      io.Writer
	missed []string
	failed []string
}

func newReport(w io.Writer) *report { return &report{w: w} }

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.w, format, args...) }

func (r *report) title(text string) { r.printf("\n## %s\n\n", strings.ToUpper(text[:1])+text[1:]) }

// atMost prints a figure with an upper bound.
func (r *report) atMost(name string, value float64, unit string, limit float64) {
	r.printf("%-62s %10s   goal ≤ %-8s %s\n", name, quantity(value, unit), quantity(limit, unit),
		r.verdict(name, value <= limit))
}

// atLeast prints a figure with a lower bound.
func (r *report) atLeast(name string, value float64, unit string, limit float64) {
	r.printf("%-62s %10s   goal ≥ %-8s %s\n", name, quantity(value, unit), quantity(limit, unit),
		r.verdict(name, value >= limit))
}

// figure prints a figure without a goal.
func (r *report) figure(name string, value float64, unit string) {
	r.printf("%-62s %10s\n", name, quantity(value, unit))
}

// spread prints the quarters of values between which half of them are.
func (r *report) spread(name string, values []float64, unit string) {
	sorted := slices.Sorted(slices.Values(values))
	r.printf("%-62s %10s to %s\n", name, quantity(sorted[len(sorted)/4], unit), quantity(sorted[len(sorted)*3/4], unit))
}

// verdict returns the text beside a goal; missed goals are listed at the end.
func (r *report) verdict(name string, ok bool) string {
	if ok {
		return "ok"
	}
	r.missed = append(r.missed, name)
	return "MISSED"
}

// unmeasured prints why a figure is missing.
func (r *report) unmeasured(what string, err error) {
	r.failed = append(r.failed, what)
	r.printf("%s: not measured: %v\n", what, err)
}

// close prints missed goals; its error names what could not be measured.
func (r *report) close() error {
	r.printf("\n")
	if len(r.missed) == 0 {
		r.printf("No goal of what was measured is missed.\n")
	} else {
		r.printf("Missed:\n")
		for _, name := range r.missed {
			r.printf("  %s\n", name)
		}
	}
	if len(r.failed) > 0 {
		return errors.New("not measured: " + strings.Join(r.failed, ", "))
	}
	return nil
}

// progress shows the current step on a terminal.
func progress(format string, args ...any) {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	fmt.Fprintf(os.Stderr, "\r%-76s\r", fmt.Sprintf(format, args...))
}

// quantity formats a number with three significant digits, or all digits of a whole one.
func quantity(v float64, unit string) string {
	text := fmt.Sprintf("%.0f", v)
	if size := math.Abs(v); v != float64(int64(v)) && size < 100 {
		digits := 1
		switch {
		case size < 1:
			digits = 3
		case size < 10:
			digits = 2
		}
		text = fmt.Sprintf("%.*f", digits, v)
	}
	return strings.TrimSpace(text + " " + unit)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
