package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// runAlone runs a program that is not traced, and returns what it prints.
func runAlone(t *testing.T, env *rig.Env, board rig.Board, args ...string) (out string, err error) {
	t.Helper()
	cmd := env.Command(t.Context(), board, args...)
	cmd.Dir = t.TempDir()
	b, err := cmd.Output()
	return string(b), err
}

// lineOf is the line of a program with a remark: "whatif.py:24".
func lineOf(t *testing.T, name, remark string) string {
	t.Helper()
	text, err := os.ReadFile(program(t, name))
	qt.Assert(t, qt.IsNil(err))
	before, _, found := strings.Cut(string(text), "# "+remark+"\n")
	qt.Assert(t, qt.IsTrue(found))
	return fmt.Sprintf("%s:%d", name, strings.Count(before, "\n")+1)
}

// TestTheLargestBatchIsTrue: the extrapolated batch size works, and the next one dies at the line that fit names.
func TestTheLargestBatchIsTrue(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	var files []string
	for _, batch := range []string{"1", "3"} {
		file, _ := recordProgram(t, "0.81.1", "growing.py", batch)
		files = append(files, file)
	}
	var said struct {
		Largest int
		Fails   struct {
			Value  int
			Region string
			Stack  []event.Frame
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(output(t, "fit", files[0], files[1], "--param", "1,3", "--json"), &said)))
	qt.Check(t, qt.Equals(said.Fails.Value, said.Largest+1))
	qt.Check(t, qt.Equals(said.Fails.Region, "L1"))
	qt.Check(t, qt.IsTrue(name.AtLine(lineOf(t, "growing.py", "WIDE"))(event.StackOf(said.Fails.Stack))), qt.Commentf("%v", said.Fails.Stack))
	out, err := runAlone(t, env, "n150", program(t, "growing.py"), strconv.Itoa(said.Largest))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(out, "WORKED"))
	_, err = runAlone(t, env, "n150", program(t, "growing.py"), strconv.Itoa(said.Largest+1))
	var exit *exec.ExitError
	qt.Assert(t, qt.ErrorAs(err, &exit))
	qt.Check(t, qt.Matches(string(exit.Stderr), `(?s).*\n    wide = .*Out of Memory.*`))
}
