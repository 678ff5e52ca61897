package e2e

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/go-quicktest/qt"
)

// TestPeaksWithinFunctions: the peaks of the calls of a function are those that phases lists, and the library's.
func TestPeaksWithinFunctions(t *testing.T) {
	t.Parallel()
	file, _ := recordProgram(t, "0.81.1", "phases.py")
	type phase struct {
		Calls string
		Peaks []struct {
			Region string
			Bytes  uint64
		}
		Phases []phase
	}
	said := func(doc any, args ...string) {
		t.Helper()
		out, err := exec.Command(ttmem, append(args, "--json")...).Output()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v", args))
		qt.Assert(t, qt.IsNil(json.Unmarshal(out, doc)))
	}
	bytes := func(one phase) map[string]uint64 {
		peaks := make(map[string]uint64)
		for _, p := range one.Peaks {
			peaks[p.Region] = max(peaks[p.Region], p.Bytes)
		}
		return peaks
	}
	var listed struct{ Phases []phase }
	said(&listed, "phases", file)
	found := 0
	for _, main := range listed.Phases {
		for _, one := range main.Phases {
			switch one.Calls {
			case "load", "forward", "backward", "optimize":
				found++
				var peaks phase
				said(&peaks, "peak", file, "--within", one.Calls)
				want, got := bytes(one), bytes(peaks)
				qt.Check(t, qt.Equals(got["DRAM"], want["DRAM"]), qt.Commentf("%s", one.Calls))
				qt.Check(t, qt.Equals(got["L1"], want["L1"]), qt.Commentf("%s", one.Calls))
			}
		}
	}
	qt.Check(t, qt.Equals(found, 4))

	// forward leaves its activations: its input of each call is freed
	var left struct{ Buffers []struct{ Region string } }
	said(&left, "dump", file, "--within", "forward#6", "--region", "DRAM")
	qt.Check(t, qt.IsTrue(len(left.Buffers) >= 3), qt.Commentf("%v", left))
}
