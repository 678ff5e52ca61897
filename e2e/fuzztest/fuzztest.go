// Package fuzztest has the properties that the fuzz targets of all packages check.
package fuzztest

import (
	"fmt"
	"runtime"
	"testing"
	"unicode"
)

// Bounded calls parse, which reads an input of n bytes, and fails if it does not end or allocates
// more than 16 MiB and perByte for each byte of the input: what a file claims must not cost
// memory.
func Bounded(t testing.TB, n, perByte int, parse func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	Ends(fmt.Sprintf("parsing %d bytes", n), parse)
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
