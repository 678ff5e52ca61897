package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// README.md begins with what `make demo` prints: all but times, the PID and the size of the
// recording are the same each time.
func TestReadmeHasTheDemosReport(t *testing.T) {
	t.Parallel()
	checkDemosReport(t)
}

func checkDemosReport(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	qt.Assert(t, qt.IsNil(err))
	_, block, _ := strings.Cut(string(readme), "```\n$ ")
	command, want, found := strings.Cut(block[:strings.Index(block, "```")], "\n…\n")
	qt.Assert(t, qt.IsTrue(found), qt.Commentf("%s", block))
	makefile, err := os.ReadFile("../Makefile")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(makefile), "\tbin/"+command+"\n"))

	const recording = "bin/demo.ttmem" // of the command
	file := filepath.Join(t.TempDir(), "demo.ttmem")
	under := setup(t, "0.81.1", "3.10").Command(t.Context(), rig.N150)
	cmd := exec.Command(ttmem, strings.Fields(strings.Replace(command, recording, file, 1))[1:]...)
	cmd.Dir = ".."
	cmd.Env = append(testEnviron(under.Env, rig.N150, t.TempDir()), "PATH="+filepath.Dir(under.Path)+":"+os.Getenv("PATH"), "LC_ALL=C.UTF-8")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%s", stderr.String()))
	_, got, _ := strings.Cut(strings.ReplaceAll(stderr.String(), file, recording), "Device memory")
	varies := regexp.MustCompile(`over [0-9.]+ s|(?m:^ +[0-9]+  exit)|recorded [0-9]+ events|\([0-9.]+ KiB\)|(?m:^ Host memory: .*\n)`)
	qt.Check(t, qt.Equals(varies.ReplaceAllString("Device memory"+got, "…"), varies.ReplaceAllString(want, "…")))
}
