package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// TestOwnersOfARunningProcess: root sees who holds each buffer of a process that runs already, and
// what it is there: live, and in the recording of an attach.
func TestOwnersOfARunningProcess(t *testing.T) {
	t.Parallel()
	tensors := map[string]string{
		"view": "bf16[64,32] TILE", "model.table": "u32[5,7] ROW_MAJOR", "local kept of main()": "bf16[1,32,32,64] TILE",
	}
	for i := range 3 {
		tensors[fmt.Sprintf("model.layers[%d].wq", i)] = fmt.Sprintf("bf16[1,32,%d,64] TILE", 32*(i+1))
		tensors[fmt.Sprintf("model.layers[%d].bias['k']", i)] = "bfp8[32,32] TILE"
	}
	for _, with := range []struct{ version, python string }{{"0.81.1", "3.10"}, {"0.81.1", "3.12"}, {"0.72.0", "3.10"}} {
		t.Run(with.version+" "+with.python, func(t *testing.T) {
			t.Parallel()
			env := setup(t, with.version, with.python)
			cmd := env.Command(context.Background(), rig.N150, program(t, "owners.py"))
			in, err := cmd.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			out, err := cmd.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(cmd.Start()))
			t.Cleanup(func() {
				in.Close()
				_ = cmd.Wait()
			})
			var addresses map[string]uint64
			for lines := bufio.NewScanner(out); addresses == nil && lines.Scan(); {
				_ = json.Unmarshal(lines.Bytes(), &addresses)
			}
			qt.Assert(t, qt.HasLen(addresses, len(tensors)))

			owners := func(args ...string) map[string]uint64 {
				text, err := exec.Command(ttmem, append([]string{"dump", "--json"}, args...)...).Output()
				if err != nil {
					return nil // a recording without events
				}
				var dump struct {
					Buffers []struct {
						Address       uint64
						Owner, Tensor string
					}
				}
				qt.Assert(t, qt.IsNil(json.Unmarshal(text, &dump)))
				found := make(map[string]uint64)
				for _, b := range dump.Buffers {
					if b.Owner != "" {
						found[b.Owner] = b.Address
						qt.Check(t, qt.Equals(b.Tensor, tensors[b.Owner]), qt.Commentf("%s", b.Owner))
					}
				}
				return found
			}
			qt.Check(t, qt.DeepEquals(owners("-p", fmt.Sprint(cmd.Process.Pid)), addresses))

			recording := filepath.Join(t.TempDir(), "owners.ttmem")
			attach := exec.Command(ttmem, "attach", "-p", fmt.Sprint(cmd.Process.Pid), "-o", recording)
			qt.Assert(t, qt.IsNil(attach.Start()))
			waitFor(t, "the recording has the owners", func() bool { return len(owners(recording)) == len(addresses) })
			qt.Check(t, qt.DeepEquals(owners(recording), addresses))
			qt.Assert(t, qt.IsNil(attach.Process.Signal(os.Interrupt)))
			qt.Check(t, qt.IsNil(attach.Wait()))
			qt.Check(t, qt.DeepEquals(owners(recording), addresses))
			if with.python == "3.12" {
				checkOwnersElsewhere(t, recording, addresses, tensors)
			}
		})
	}
}

// TestALeakOfARunningProcessIsNamedByItsContainer: of a process that was attached late, the first line of
// leaks has the container that grows, with what it held before, and each page says who holds the rest.
func TestALeakOfARunningProcessIsNamedByItsContainer(t *testing.T) {
	t.Parallel()
	p := startTarget(t, setup(t, "0.81.1", "3.10"), rig.N150, program(t, "leak_held.py"), "6")
	p.expect(t, "ready")
	recording := filepath.Join(t.TempDir(), "late.ttmem")
	attach := attachTo(t, recording, p.Process.Pid)
	for _, line := range []string{"24", "fail"} { // after a failure owners are searched
		fmt.Fprintln(p.stdin, line)
		p.expect(t, "done")
	}
	page := func(args ...string) string {
		text, err := exec.Command(ttmem, args...).CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", args, text))
		return string(text)
	}
	waitFor(t, "the owners of all steps", func() bool {
		text, _ := exec.Command(ttmem, "dump", "--json", recording).Output()
		return strings.Count(string(text), `"owner":"model.debug[`) == 30
	})
	qt.Assert(t, qt.IsNil(attach.Process.Signal(os.Interrupt)))
	qt.Check(t, qt.IsNil(attach.Wait()))

	leaks := page("leaks", recording)
	qt.Check(t, qt.Matches(leaks, `model\.debug\['x'\]\[…\]: 6 → 18 → 30 tensors\n(?s:.*)`))
	qt.Check(t, qt.StringContains(leaks, fmt.Sprintf("leak_held.py:%d step", leakLine(t, "leak_held.py"))))
	qt.Check(t, qt.Matches(page("report", recording), `(?s).*held by model\.debug\['x'\]\[…\]: 6 → 18 → 30 tensors\n.*`))
	qt.Check(t, qt.Matches(page("peak", recording), `(?s).*  held by model\.layers\[\*\] · bf16\[64,64\] TILE\n.*`))
	qt.Check(t, qt.Matches(page("oom", recording), `(?s).*held by model\.state · bf16\[32,64\] TILE\n.*`))
	qt.Check(t, qt.Matches(page("top", "--once", recording), `(?s).*held by model\.layers\[\*\].*`))
	qt.Check(t, qt.Matches(page("export", recording, "--to", "folded", "--by", "owner", "-o", "-"), `(?s).*;DRAM;model\.debug\['x'\]\[\*\];[^\n]*;step \(leak_held.*`))
}
