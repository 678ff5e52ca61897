package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/tracer/recording"
)

// peakPage is what ttmem peak --json prints of a file, without its timelines, and the
// highest that each has.
func peakPage(t *testing.T, file string) (page string, most []float64) {
	t.Helper()
	out, err := exec.Command(ttmem, "peak", "--json", file).Output()
	qt.Assert(t, qt.IsNil(err))
	var doc map[string]any
	qt.Assert(t, qt.IsNil(json.Unmarshal(out, &doc)))
	for _, peak := range doc["peaks"].([]any) {
		peak := peak.(map[string]any)
		high := 0.0
		for _, n := range peak["timeline"].(map[string]any)["max_bytes"].([]any) {
			high = max(high, n.(float64))
		}
		most = append(most, high)
		delete(peak, "timeline")
		delete(peak, "static_timeline")
	}
	text, err := json.MarshalIndent(doc, "", " ")
	qt.Assert(t, qt.IsNil(err))
	return string(text), most
}

// TestPeakFromNotes: of a long recording most is not read, and what is told is what all
// events say.
func TestPeakFromNotes(t *testing.T) {
	for _, board := range []rig.Board{"n150", "t3000"} {
		t.Run(string(board), func(t *testing.T) {
			dir, env := t.TempDir(), setup(t, "0.81.1", "3.10")
			file, again := filepath.Join(dir, "once.ttmem"), filepath.Join(dir, "again.ttmem")
			var size int64
			grown := 0 // times: with each, what was recorded since the last is noted
			recordUntil(t, env, board, dir, []string{"-o", file}, func() bool {
				if info, err := os.Stat(file); err == nil && info.Size() > size {
					size = info.Size()
					grown++
				}
				return grown > 4
			})
			r, err := recording.Open(file)
			qt.Assert(t, qt.IsNil(err))
			notes := 0
			for range r.Notes() {
				notes++
			}
			qt.Check(t, qt.IsNil(r.Close()))
			qt.Check(t, qt.IsTrue(notes > 1), qt.Commentf("%d", notes)) // ttmem record makes them

			checkpoints := recordAgain(t, file, again, 2000)
			qt.Assert(t, qt.IsTrue(len(checkpoints) > 4))
			want, highest := peakPage(t, file)
			got, most := peakPage(t, again)
			qt.Check(t, qt.Equals(got, want))
			qt.Check(t, qt.DeepEquals(most, highest))

			// what is damaged in the middle would be met by who reads all
			recorded, err := os.ReadFile(again)
			qt.Assert(t, qt.IsNil(err))
			recorded[checkpoints[2].Offset()+checkpoints[2].Size()+100] ^= 1 // among the events behind it
			qt.Assert(t, qt.IsNil(os.WriteFile(again, recorded, 0o600)))
			_, _, status := runTtmem(t, nil, "log", again, "-n", "1")
			qt.Check(t, qt.Equals(status, 1))
			got, _ = peakPage(t, again)
			qt.Check(t, qt.Equals(got, want))
		})
	}
}
