package rig

import (
	"fmt"
	"regexp"
	"strconv"
)

// release is a release of ttnn: major, minor and patch.
type release [3]int

// versions matches the version numbers of PyPI, including pre-releases.
var versions = regexp.MustCompile(`^(\d{1,4})\.(\d{1,4})\.(\d{1,4})((a|b|rc)\d+)?(\.(post|dev)\d+)?$`)

// parseRelease parses "0.81.1". It ignores what follows the patch number, as in 0.76.0rc3
// or 0.76.0.dev20260101.
func parseRelease(s string) (release, error) {
	var r release
	m := versions.FindStringSubmatch(s)
	if m == nil {
		return r, fmt.Errorf("version %q of ttnn: want three numbers, such as %s", s, DefaultVersion)
	}
	for i := range r {
		r[i], _ = strconv.Atoi(m[1+i]) // the pattern allows digits only
	}
	return r, nil
}

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

// before reports whether r is older than o.
func (r release) before(o release) bool {
	for i := range r {
		if r[i] != o[i] {
			return r[i] < o[i]
		}
	}
	return false
}

// mockable returns why a release does not run on the mock device.
func (r release) mockable() error {
	switch {
	case r.before(release{0, 66, 0}):
		return fmt.Errorf("ttnn %v does not open a mock device: choose 0.66.0 or later", r)
	case r == release{0, 67, 4}:
		return fmt.Errorf("ttnn %v crashes on the mock device: choose another release", r)
	}
	return nil
}

// slowDispatch reports whether the release opens a mock device only when the host writes
// the commands itself.
func (r release) slowDispatch() bool {
	return !r.before(release{0, 67, 0}) && r.before(release{0, 75, 0})
}
