package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
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
		{program: "too_large.py", status: 1, lines: []string{"norm"}, owners: []string{"block.activations[*]"}},
	} {
		t.Run(test.program, func(t *testing.T) {
			path, args := program(t, "newcomer/"+test.program), []string(nil)
			if test.pytest {
				packages, err := setup(t, "0.81.1", "3.10").Pytest(t.Context())
				qt.Assert(t, qt.IsNil(err))
				const main = "import sys; sys.path.insert(0, sys.argv[1]); import pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', sys.argv[2]]))"
				path, args = "-c", []string{main, packages, path}
			}
			_, report, status := askOf(t, t.TempDir(), []string{"run", "-o", "model.ttmem"}, path, args...)
			qt.Check(t, qt.Equals(status, test.status), qt.Commentf("%s", report))
			rows := strings.Split(report, "\n")
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
