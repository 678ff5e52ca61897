package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// docs/questions.sh asks five questions, and each answer names the planted line within its
// first ten rows.
func TestFiveQuestions(t *testing.T) {
	t.Parallel()
	script := exec.Command("../docs/questions.sh", t.TempDir())
	env := setup(t, "0.81.1", "3.10").Command(t.Context(), rig.N150)
	script.Env = append(testEnviron(env.Env, rig.N150, t.TempDir()), "TTMEM="+ttmem, "PATH="+filepath.Dir(env.Path)+":"+os.Getenv("PATH"))
	out, err := script.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	answers := strings.Split(string(out), "\n# ")[1:]
	for i, planted := range []struct{ question, file, mark string }{
		{"What uses memory now?", "hold.py", "held"},
		{"What leaks?", "story_leak.py", "leak"},
		{"Why did it fail with memory free?", "story_fragments.py", "fragmented"},
		{"What is my peak made of?", "story_peak.py", "peak"},
		{"What changed since yesterday?", "story_leak.py", "leak"},
	} {
		qt.Assert(t, qt.IsTrue(i < len(answers)), qt.Commentf("%s", out))
		rows := lines(answers[i])
		qt.Check(t, qt.Equals(rows[0], planted.question))
		first := strings.Join(rows[2:min(12, len(rows))], "\n")
		line := markedLines(t, program(t, planted.file))[planted.mark]
		qt.Check(t, qt.StringContains(first, fmt.Sprintf("%s:%d ", planted.file, line)), qt.Commentf("%s", answers[i]))
	}
	qt.Check(t, qt.HasLen(answers, 5))
}
