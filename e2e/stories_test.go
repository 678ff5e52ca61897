package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// storyFolder is the folder for the recordings of TestRecordStories. Without it the test is
// skipped: the golden files of cmd/ttmem are made from committed events.
var storyFolder = flag.String("stories", "", "record the programs of cmd/ttmem's golden files into the folder")

// A storyRecorder records the program of one story to a file.
type storyRecorder func(t *testing.T, dir, file string)

// TestRecordStories records a program for each story of cmd/ttmem/testdata/golden:
//
//	sudo go test ./e2e -run TestRecordStories -stories /tmp/stories
//	go test ./cmd/ttmem -run TestGolden -update-stories /tmp/stories
func TestRecordStories(t *testing.T) {
	if *storyFolder == "" {
		t.Skip("no -stories FOLDER")
	}
	qt.Assert(t, qt.IsNil(os.MkdirAll(*storyFolder, 0o755)))
	repaired := []string{"self.seen.append(ttnn.log(result))", "ttnn.log(result)"}
	for name, record := range map[string]storyRecorder{
		"leak":      recordStoryOf(storyCommand{program: "story_leak.py", args: []string{"30"}}),
		"repaired":  recordStoryOf(storyCommand{program: "story_leak.py", args: []string{"30"}, edits: repaired}),
		"ring":      recordStoryOf(storyCommand{program: "story_replaced.py", edits: []string{"range(60)", "range(40)"}}),
		"cache":     recordStoryOf(storyCommand{program: "story_cache.py", edits: []string{"range(8, 48, 2)", "range(8, 28, 2)"}}),
		"fragments": recordStoryOf(storyCommand{program: "story_fragments.py", args: []string{"raise"}, status: 1}),
		"peak":      recordStoryOf(storyCommand{program: "peak_op.py"}),
		"reopen":    recordStoryOf(storyCommand{program: "reopen.py"}),
		"killed":    recordStoryOf(storyCommand{program: "oom.py", args: []string{"kill"}, status: 137}),
		"mesh":      recordStoryOf(storyCommand{program: "submesh.py", board: "t3000"}),
		"chips":     recordStoryOf(storyCommand{program: "demo.py", board: "n300"}),
		"mix":       recordStoryOf(storyCommand{program: "mix.py", version: "0.76.0", edits: []string{"check.count < 50", "check.count < 44"}}),
		"inference": recordStoryOf(storyCommand{program: "small_transformer.py", args: []string{"clean", "4"}}),
		"crowd":     recordCrowd,
		"late":      recordLate,
		"held":      recordHeld,
		"marks":     recordMarks,
	} {
		t.Run(name, func(t *testing.T) {
			file, err := filepath.Abs(filepath.Join(*storyFolder, name+".ttmem"))
			qt.Assert(t, qt.IsNil(err))
			if err := os.Remove(file); err != nil {
				qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))
			}
			record(t, t.TempDir(), file)
		})
	}
}

// A storyCommand is one program under `ttmem run`.
type storyCommand struct {
	program string
	args    []string
	edits   []string // old and new text, by turns
	version string   // of ttnn; "": 0.81.1
	board   rig.Board
	status  int // the exit status
}

// recordStoryOf records a command from its start to its end.
func recordStoryOf(c storyCommand) storyRecorder {
	return func(t *testing.T, dir, file string) {
		t.Helper()
		path := program(t, c.program)
		if len(c.edits) > 0 {
			path = edited(t, c.program, c.edits...)
		}
		if c.version == "" {
			c.version = "0.81.1"
		}
		if c.board == "" {
			c.board = "n150"
		}
		python := setup(t, c.version, "3.10").Command(context.Background(), c.board, append([]string{path}, c.args...)...)
		under := append([]string{"--", python.Path}, python.Args[1:]...)
		recordUnder(t, storyEnviron(t, python.Env, c.board, dir), dir, file, under, c.status)
	}
}

// storyEnviron lets an edited program import the others.
func storyEnviron(t *testing.T, env []string, board rig.Board, dir string) []string {
	t.Helper()
	return append(testEnviron(env, board, dir), "PYTHONPATH="+filepath.Dir(program(t, "device.py"))+":"+pythonPackage, "PYTHONDONTWRITEBYTECODE=1")
}

// recordUnder runs `ttmem run` until it ends.
func recordUnder(t *testing.T, env []string, dir, file string, args []string, status int) {
	t.Helper()
	cmd := exec.Command(ttmem, append([]string{"run", "-o", file}, args...)...)
	cmd.Env, cmd.Dir = env, dir
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	qt.Assert(t, qt.Equals(cmd.ProcessState.ExitCode(), status), qt.Commentf("%s", said.String()))
	t.Logf("%s", said.String())
}

// recordCrowd records processes that share a chip: one has live memory all the time, while
// one ends and two crash, each with memory that it has not freed.
func recordCrowd(t *testing.T, dir, file string) {
	python := setup(t, "0.81.1", "3.10").Command(context.Background(), "n150")
	script := fmt.Sprintf(`sleep 3 | %[1]q %[2]q 6 512 & sleep 1.5
for how in "1 exit" "2 crash" "5 crash"; do %[1]q %[3]q $how & done; wait`, python.Path, program(t, "hold.py"), program(t, "serve_crowd.py"))
	recordUnder(t, storyEnviron(t, python.Env, "n150", dir), dir, file, []string{"--", "sh", "-c", script}, 0)
}

// recordLate records a busy program for a moment.
func recordLate(t *testing.T, dir, file string) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "late.py"), "20")
	p.expect(t, "ready")
	recordUnder(t, os.Environ(), dir, file, []string{"-p", fmt.Sprint(p.Process.Pid), "--duration", "250ms"}, 0)
	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()), qt.Commentf("%s", p.stderr.String()))
}

// recordHeld records a program that has opened its device, until it has loaded a model.
func recordHeld(t *testing.T, dir, file string) {
	p := startTarget(t, setup(t, "0.81.1", "3.10"), "n150", program(t, "dump.py"), "wait")
	p.expect(t, "opened")
	cmd := exec.Command(ttmem, "attach", "-o", file, "-p", fmt.Sprint(p.Process.Pid))
	cmd.Dir = dir
	stderr, err := cmd.StderrPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	defer cmd.Process.Kill()
	said := bufio.NewReader(stderr)
	for line := ""; !strings.Contains(line, "Ctrl-C"); {
		line, err = said.ReadString('\n')
		qt.Assert(t, qt.IsNil(err), qt.Commentf("record ended: %s", line))
	}
	go io.Copy(io.Discard, said)
	fmt.Fprintln(p.stdin)
	p.expect(t, "holding")
	qt.Assert(t, qt.IsNil(cmd.Process.Signal(os.Interrupt)))
	waitEnd(t, cmd.Wait)
	p.stdin.Close()
	qt.Check(t, qt.IsNil(p.Wait()), qt.Commentf("%s", p.stderr.String()))
}

// recordMarks records a program that sets marks through the service.
func recordMarks(t *testing.T, dir, file string) {
	s, env := startServer(t, "-o", file), setup(t, "0.81.1", "3.10")
	s.discover(t, env) // the library, so that the program is traced from its start
	cmd := env.Command(context.Background(), "n150", program(t, "log_story.py"), "6")
	cmd.Env = append(testEnviron(cmd.Env, "n150", dir), "TTMEM_MARK="+ttmem+" mark --socket "+s.socket)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	s.stop(t)
}
