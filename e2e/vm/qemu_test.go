package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestImpossibleFlags(t *testing.T) {
	for line, want := range map[string]bool{
		"[   14.26] RSP: 0018:ffffd1cf006d3a40 EFLAGS: 8b32f242":          true,
		"[   14.26] RSP: 0018:ffffd1cf006d3a40 EFLAGS: 00400246":          true,
		"[   14.26] RSP: 0018:ffffd1cf006d3a40 EFLAGS: 00200246":          false,
		"[   14.26] RSP: 002b:00007f97224f8a78 EFLAGS: 00000206 ORIG_RAX": false,
		"[   14.26] RAX: ffff8c868a22f000 RBX: ffff8c868a228000":          false,
	} {
		qt.Check(t, qt.Equals(impossible(line), want), qt.Commentf("%s", line))
	}
}

func TestWhile(t *testing.T) {
	for mark, want := range map[string]string{
		"":               "while the kernel booted: no process was started",
		"started 6.12.1": "while the root was mounted: no check was started",
		"begin late":     "in the check late",
		"end late 0 12":  "after the check late",
		"ended":          "at its end",
	} {
		qt.Check(t, qt.Equals(while(strings.Fields(mark)), want))
	}
}
