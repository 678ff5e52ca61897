package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// A finding is what the agent of agent.py found.
type finding struct {
	Calls   int
	Line    string
	Proved  bool
	Refused bool
	Why     string
	Most    []struct {
		Region   string
		Bytes    uint64 `json:"bytes_per_bank"`
		Recorded uint64 `json:"recorded_bytes_per_bank"`
	}
}

// asks runs agent.py, with the protocol's own client, as cmd.
func asks(t *testing.T, cmd *exec.Cmd) (found finding) {
	t.Helper()
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(json.Unmarshal(out, &found)), qt.Commentf("%s", out))
	return found
}

// agentPython is an interpreter with the protocol's client.
func agentPython(t *testing.T) string {
	t.Helper()
	python, err := rig.PythonWith(t.Context(), "3.12", os.Stderr, rig.MCP...)
	qt.Assert(t, qt.IsNil(err))
	return python
}

// TestAnAgentFindsALeakAndProvesARemedy with at most six calls. The remedy is true: the program without the leak needs
// as much as the replay says.
func TestAnAgentFindsALeakAndProvesARemedy(t *testing.T) {
	t.Parallel()
	const banks = 12 // of DRAM on an n150
	file, _ := recordProgram(t, "0.81.1", "leak_planted.py", "20")
	found := asks(t, exec.Command(agentPython(t), program(t, "agent.py"), "leak", ttmem, "mcp", file))
	qt.Check(t, qt.IsTrue(found.Calls <= 6), qt.Commentf("%d", found.Calls))
	qt.Check(t, qt.Equals(found.Line, lineOf(t, "leak_planted.py", "line: leak")))
	qt.Check(t, qt.IsTrue(found.Proved))
	qt.Assert(t, qt.HasLen(found.Most, 1))
	qt.Check(t, qt.Equals(found.Most[0].Region, "DRAM"))

	dram := func(file string) (bytes uint64) {
		for _, p := range reads[struct {
			Peaks []struct {
				Region string
				Bytes  uint64
			}
		}](t, "peak", file, "--region", "DRAM").Peaks {
			bytes += p.Bytes
		}
		return bytes / banks
	}
	repaired, _ := recordProgram(t, "0.81.1", "leak_planted.py", "20", "repaired")
	qt.Check(t, qt.Equals(dram(file), found.Most[0].Recorded))
	qt.Check(t, qt.Equals(dram(repaired), found.Most[0].Bytes))
}

// TestAnAgentAsksAService: a user's agent sees the user's own processes.
func TestAnAgentAsksAService(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t)
	s.discover(t, u.env)
	as := func(args ...string) *exec.Cmd {
		return u.command(t, "sh", append([]string{"-c", `exec "$@"`, "sh"}, args...)...)
	}
	p := &target{env: u.env, Cmd: as(u.env.Command(t.Context(), rig.N150).Path, program(t, "hold.py"), "3", "512", "wait")}
	p.start(t)
	p.expect(t, "opened")
	p.next()
	p.expect(t, "holding")
	pid := strconv.Itoa(p.Process.Pid)
	found := asks(t, as(agentPython(t), program(t, "agent.py"), "live", pid, u.ttmem, "mcp", "--socket", s.socket))
	qt.Check(t, qt.Equals(found.Line, lineOf(t, "hold.py", "line: held")))
	qt.Check(t, qt.IsTrue(found.Refused))
	qt.Check(t, qt.Matches(found.Why, "-p 1: .*"))
}

// TestTheInspectorReadsTheTools: the protocol's own inspector calls a tool.
func TestTheInspectorReadsTheTools(t *testing.T) {
	if !*tracetest.Long {
		t.Skip("the inspector and its Node.js take 330 MB: -long")
	}
	t.Parallel()
	inspector, err := rig.Inspector(t.Context())
	qt.Assert(t, qt.IsNil(err))
	file, _ := recordProgram(t, "0.81.1", "leak_planted.py")
	inspect := func(args ...string) []byte {
		cmd := exec.Command(inspector[0], append(append(inspector[1:], "--cli", ttmem, "mcp", file), args...)...)
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
		return out
	}
	var listed struct{ Tools []struct{ Name string } }
	qt.Assert(t, qt.IsNil(json.Unmarshal(inspect("--method", "tools/list"), &listed)))
	qt.Check(t, qt.HasLen(listed.Tools, 10))
	var answer struct{ Content []struct{ Text string } }
	qt.Assert(t, qt.IsNil(json.Unmarshal(inspect("--method", "tools/call", "--tool-name", "leaks", "--tool-arg", "limit=1"), &answer)))
	qt.Assert(t, qt.HasLen(answer.Content, 1))
	qt.Check(t, qt.StringContains(answer.Content[0].Text, lineOf(t, "leak_planted.py", "line: leak")))
}
