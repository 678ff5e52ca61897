package tracetest

import (
	"flag"
	"slices"
)

// Long selects the long forms of the tests.
var Long = flag.Bool("long", false, "run the long forms of tests, on all releases")

// releases are those of the short forms: each costs a download of up to a minute, and each
// test that runs on it seconds. They are the oldest and the newest, and the last one with
// the older layout of buffers.
var releases = []string{"0.68.0", "0.76.0", "0.81.1"}

// Selected reports whether the tests cover a release in the form that runs.
func Selected(release string) bool { return *Long || slices.Contains(releases, release) }

// Many is how often a test tries something, by the form that runs.
func Many(short, long int) int {
	if *Long {
		return long
	}
	return short
}
