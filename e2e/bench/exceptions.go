package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
)

// exceptionWork is how often a program throws, with the number of times in a round.
var exceptionWork = []struct {
	name, title string
	turns       int
}{
	{"out_of_range", "std::out_of_range, in another library", 100000},
	{"runtime_error", "std::runtime_error, in another library", 100000},
	{"iterate", "end of an iteration, in ttnn's bindings", 100000},
}

// exceptions measures what a program that uses tt-metal pays for exceptions that are not the library's.
func (b *bench) exceptions() error {
	library := filepath.Join(b.dir, "throw.so")
	out, err := exec.Command("g++", "-O1", "-shared", "-fPIC", "-o", library, filepath.Join(b.module, "e2e", "programs", "throw.cpp")).CombinedOutput()
	if err != nil {
		return fmt.Errorf("compiling throw.cpp: %w: %s", err, out)
	}
	b.printf("%-40s %10s %10s %10s %10s %12s\n", "processor time, median of the rounds", "µs without", "µs with", "ratio", "noise ±", "ttmem's µs")
	for _, w := range exceptionWork {
		if err := b.withTtmem(w.title, w.turns, mostForExceptions, "throw.py", w.name, library); err != nil {
			return fmt.Errorf("%s: %w", w.name, err)
		}
	}
	return nil
}

// mostForExceptions is the largest part of the time that exceptions of other kinds may cost.
const mostForExceptions = 0.05
