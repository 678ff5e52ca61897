package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
)

// firstRows is how much of a report a newcomer reads.
const firstRows = 12

// TestNewcomer: somebody who knows nothing of ttmem runs an ordinary program under it. The first rows of
// the report name the planted line, and who holds the memory.
func TestNewcomer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		program string
		pytest  bool
		status  int
		// lines are the marked lines, and owners the paths of those that hold what they allocate.
		lines, owners []string
	}{
		{program: "transformer.py", lines: []string{"weight"}, owners: []string{"model.blocks[*].mlp.up", "model.blocks[*].mlp.down"}},
		{program: "cnn.py", lines: []string{"weight"}, owners: []string{"network.stem.weight"}},
		{program: "generate.py", lines: []string{"keys"}, owners: []string{"cache.k[*]", "cache.v[*]"}},
		{program: "server.py", lines: []string{"history", "sessions"}, owners: []string{"server.history[…]", "server.sessions[…]"}},
		{program: "asynchronous.py", lines: []string{"infer"}, owners: []string{"server.answers[…]"}},
		{program: "training.py", lines: []string{"loss"}, owners: []string{"trainer.losses[…]"}},
		{program: "workers.py", lines: []string{"copy"}, owners: []string{"copies[…]"}},
		{program: "test_model.py", pytest: true, lines: []string{"mask"}, owners: []string{"test_model.CACHE[…]"}},
		{program: "out_of_memory.py", status: 1, lines: []string{"login"}, owners: []string{"service.keys[*]"}},
		{program: "too_large.py", status: 1, lines: []string{"scores"}, owners: []string{"block.activations[*]"}},
	} {
		t.Run(test.program, func(t *testing.T) {
			t.Parallel()
			path, args := program(t, "newcomer/"+test.program), []string(nil)
			if test.pytest {
				packages, err := setup(t, "0.81.1", "3.10").Pytest(t.Context())
				qt.Assert(t, qt.IsNil(err))
				const main = "import sys; sys.path.insert(0, sys.argv[1]); import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[2]]))"
				path, args = "-c", []string{main, packages, path}
			}
			dir := t.TempDir()
			seen := filepath.Join(dir, "seen")
			found := make(chan bool)
			go func() { // on a busy host the search takes longer than the program
				defer close(found)
				eventually(time.Minute, func() bool {
					_, err := os.Stat(filepath.Join(dir, "idle"))
					return err == nil
				})
				tracetest.Eventually(time.Minute*patience, func() bool {
					known, _, _ := runTtmem(t, nil, "dump", filepath.Join(dir, "model.ttmem"), "--by", "owner")
					at := func(path string) int { return strings.Index(known, strings.ReplaceAll(path, "…", "*")) }
					unknown := strings.Index(known, "(owner not known)") // of few buffers, or none
					return !slices.ContainsFunc(test.owners, func(path string) bool { return at(path) < 0 }) &&
						(unknown < 0 || at(test.owners[0]) < unknown)
				})
				_ = os.WriteFile(seen, nil, 0o600)
			}()
			_, said, status := askWith(t, dir, []string{"TTMEM_IDLE_UNTIL=" + seen}, []string{"run", "-o", "model.ttmem"}, path, args...)
			<-found
			qt.Check(t, qt.Equals(status, test.status), qt.Commentf("%s", said))
			_, report, _ := strings.Cut(said, "Device memory over") // after what the program says
			rows := slices.DeleteFunc(strings.Split(report, "\n"), func(row string) bool { return strings.TrimSpace(row) == "" })
			first := strings.Join(rows[:min(firstRows, len(rows))], "\n")
			for _, marked := range test.lines {
				qt.Check(t, qt.StringContains(first, filepath.Base(lineMarked(t, filepath.Join("newcomer", test.program), marked))), qt.Commentf("%s", report))
			}
			for _, owner := range test.owners {
				qt.Check(t, qt.StringContains(first, owner), qt.Commentf("%s", report))
			}
		})
	}
}
