package e2e

import (
	"encoding/json"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestDoctor: a library is told with its release, its build-id and where its
// fields lie, and nothing is missing in it.
func TestDoctor(t *testing.T) {
	for version, size := range map[string]string{"0.81.1": "0x10+0x8", "0.76.0": "0x18"} {
		stdout, stderr, status := runTtmem(t, nil, "doctor", "--json", "--library", setup(t, version, "3.10").Library)
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
		var d struct {
			V         int
			Libraries []struct {
				Path    string
				Release string
				BuildID string `json:"build_id"`
				Fields  map[string]string
				Probes  map[string]string
				Missing []any
			}
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(stdout), &d)))
		qt.Check(t, qt.Equals(d.V, 1))
		qt.Assert(t, qt.HasLen(d.Libraries, 1))
		l := d.Libraries[0]
		qt.Check(t, qt.Equals(l.Release, version))
		qt.Check(t, qt.HasLen(l.BuildID, 40))
		qt.Check(t, qt.Equals(l.Fields["size_"], size))
		qt.Check(t, qt.HasLen(l.Missing, 0))
		qt.Check(t, qt.IsTrue(len(l.Probes) > 20))
	}
	// the host itself
	_, _, status := runTtmem(t, nil, "doctor")
	qt.Check(t, qt.Equals(status, 0))
}
