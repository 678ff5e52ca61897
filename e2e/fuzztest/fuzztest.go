// Package fuzztest has the properties that the fuzz targets of all packages check.
package fuzztest

import (
	"fmt"
	"runtime"
	"testing"
	"time"
	"unicode"
)

// patience is how long a parser may take. Most inputs take less than a millisecond, but the
// machine may be busy.
const patience = 20 * time.Second

// Bounded calls parse, which reads an input of n bytes, and fails if it takes long or allocates
// more than 16 MiB and perByte for each byte of the input: what a file claims must not cost
// memory.
func Bounded(t testing.TB, n, perByte int, parse func()) {
	t.Helper()
	stuck := time.AfterFunc(patience, func() { panic(fmt.Sprintf("still parsing %d bytes after %v", n, patience)) })
	defer stuck.Stop()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	parse()
	runtime.ReadMemStats(&after)
	if allocated, most := after.TotalAlloc-before.TotalAlloc, uint64(16<<20+n*perByte); allocated > most {
		t.Fatalf("%d bytes allocated for %d bytes of input: more than %d", allocated, n, most)
	}
}

// Printable fails if a text has a character that a terminal acts on, other than ends of lines.
func Printable(t testing.TB, text string) {
	t.Helper()
	for i, r := range text {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Fatalf("%q at %d of %q", r, i, text)
		}
	}
}
