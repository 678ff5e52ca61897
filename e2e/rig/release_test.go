package rig

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestParseRelease(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want release
	}{
		{"0.81.1", release{0, 81, 1}},
		{"0.76.0rc3", release{0, 76, 0}},
		{"0.76.0.dev20260101", release{0, 76, 0}},
		{"1.0.10", release{1, 0, 10}},
	} {
		got, err := parseRelease(tc.in)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, tc.want))
	}
	for _, bad := range []string{"", "81", "0.81", "v0.81.1", "0.81.x", "0.81.1 --pre", "0.81.1/../x", "0.81.1.2"} {
		_, err := parseRelease(bad)
		qt.Check(t, qt.ErrorMatches(err, `version ".*" of ttnn: want three numbers, such as `+DefaultVersion), qt.Commentf("%q", bad))
	}
}

func TestWhichReleasesRun(t *testing.T) {
	for _, tc := range []struct {
		version    string
		runs, slow bool
	}{
		{"0.60.1", false, false},
		{"0.65.1", false, false},
		{"0.66.0", true, false},
		{"0.67.0", true, true},
		{"0.67.4", false, true},
		{"0.74.0", true, true},
		{"0.75.0", true, false},
		{DefaultVersion, true, false},
		{"1.0.0", true, false},
	} {
		r, err := parseRelease(tc.version)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(r.mockable() == nil, tc.runs), qt.Commentf("%s", tc.version))
		qt.Check(t, qt.Equals(r.slowDispatch(), tc.slow), qt.Commentf("%s", tc.version))
	}
}
