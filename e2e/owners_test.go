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
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// startHolder starts a program that writes the addresses of what it holds, by their paths, and ends
// with its standard input.
func startHolder(t *testing.T, version, python, script string, args ...string) (pid int, addresses map[string]uint64) {
	t.Helper()
	cmd := setup(t, version, python).Command(context.Background(), rig.N150, append([]string{program(t, script)}, args...)...)
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	for lines := bufio.NewScanner(out); addresses == nil && lines.Scan(); {
		_ = json.Unmarshal(lines.Bytes(), &addresses)
	}
	return cmd.Process.Pid, addresses
}

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
		if !tracetest.Tests(with.version) || with.python == "3.10" && !*tracetest.Long { // TestOwnersOfARunningModel has them all
			continue
		}
		t.Run(with.version+" "+with.python, func(t *testing.T) {
			t.Parallel()
			pid, addresses := startHolder(t, with.version, with.python, "owners.py")
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
			qt.Check(t, qt.DeepEquals(owners("-p", fmt.Sprint(pid)), addresses))

			recording := filepath.Join(t.TempDir(), "owners.ttmem")
			attach := exec.Command(ttmem, "attach", "-p", fmt.Sprint(pid), "-o", recording)
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

// TestOwnersOfARunningModel: after a late attach, at least 95 % of the bytes of each region of a model
// that answers requests have an owner, and of DRAM and L1 a type and a shape as well, or were allocated
// during the search. What the program cache or a trace holds is called that, and nothing else is.
func TestOwnersOfARunningModel(t *testing.T) {
	t.Parallel()
	for _, with := range []struct {
		version, python string
		args            []string
	}{
		{"0.81.1", "3.10", nil}, {"0.81.1", "3.12", nil}, {"0.76.0", "3.10", nil}, {"0.72.0", "3.10", nil}, {"0.66.0", "3.10", []string{"trace"}},
	} {
		if !tracetest.Tests(with.version) {
			continue
		}
		t.Run(with.version+" "+with.python, func(t *testing.T) {
			t.Parallel()
			pid, addresses := startHolder(t, with.version, with.python, "served_model.py", with.args...)
			qt.Assert(t, qt.HasLen(addresses, 26))
			text, err := exec.Command(ttmem, "dump", "--json", "-p", fmt.Sprint(pid)).Output()
			qt.Assert(t, qt.IsNil(err))
			var dump struct {
				Notes      []string
				Incomplete []any `json:"incomplete_owner_searches"`
				Buffers    []struct {
					Address       uint64
					Region        string
					SizeBytes     uint64 `json:"size_bytes"` // those allocated include banks without data
					BeforeAttach  bool   `json:"before_attach"`
					Owner, Tensor string
				}
			}
			qt.Assert(t, qt.IsNil(json.Unmarshal(text, &dump)))
			type share struct{ all, owned, tensors, later uint64 }
			regions := map[string]share{"DRAM": {}, "L1": {}, "L1_SMALL": {}}
			if with.args != nil {
				regions["TRACE"] = share{}
			}
			unowned := 0
			for _, b := range dump.Buffers {
				r, ok := regions[b.Region]
				if !ok {
					continue // static buffers of the program that runs
				}
				r.all += b.SizeBytes
				switch {
				case b.Owner != "":
					r.owned += b.SizeBytes
				case !b.BeforeAttach:
					r.later += b.SizeBytes
				}
				if strings.HasSuffix(b.Tensor, " TILE") || strings.HasSuffix(b.Tensor, " ROW_MAJOR") {
					r.tensors += b.SizeBytes
				}
				regions[b.Region] = r
				switch at, known := addresses[b.Owner]; {
				case b.Owner == "":
					unowned++
				case known:
					qt.Check(t, qt.Equals(b.Address, at), qt.Commentf("%s", b.Owner))
					qt.Check(t, qt.Equals(b.Tensor == "global_semaphore", b.Owner == "model.semaphore"), qt.Commentf("%s is %s", b.Owner, b.Tensor))
					delete(addresses, b.Owner)
				case b.Owner == "model.ring":
					qt.Check(t, qt.Equals(b.Region+" "+b.Tensor, "L1 global_circular_buffer"))
				case b.Region == "L1_SMALL":
					qt.Check(t, qt.Equals(b.Owner, "program cache"))
				case b.Region == "TRACE":
					qt.Check(t, qt.Equals(b.Owner, "trace region"))
				default: // a result that the program just used
					qt.Check(t, qt.Matches(b.Owner, `.*local .* of .*`))
				}
			}
			qt.Check(t, qt.HasLen(addresses, 0), qt.Commentf("without an owner"))
			for name, r := range regions {
				t.Logf("%-8s %d of %d bytes have an owner, %d are tensors, %d were allocated during the search", name, r.owned, r.all, r.tensors, r.later)
				qt.Check(t, qt.IsTrue(r.all > 0 && (r.owned+r.later)*100 >= r.all*95), qt.Commentf("%s: %+v", name, r))
				if name == "DRAM" || name == "L1" {
					qt.Check(t, qt.IsTrue((r.tensors+r.later)*100 >= r.all*95), qt.Commentf("%s: %+v", name, r))
				}
			}
			// of a search that a busy host made incomplete, the document says why
			noted := strings.Contains(strings.Join(dump.Notes, " "), " have no owner: ")
			qt.Check(t, qt.Equals(noted, unowned > 0 && len(dump.Incomplete) == 0), qt.Commentf("%d, %v, %v", unowned, dump.Notes, dump.Incomplete))
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
	if !eventually(2*time.Minute, func() bool {
		text, _ := exec.Command(ttmem, "dump", "--json", recording).Output()
		return strings.Count(string(text), `"owner":"model.debug[`) == 30
	}) {
		t.Fatalf("the owners of all steps do not come:\n%s\n%s", page("oom", recording), page("dump", recording, "--by", "owner"))
	}
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
