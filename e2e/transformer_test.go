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

// The report of run, leaks and top name no leak of a transformer that has none. Of one that keeps
// activations, each of them names the line. TestPytestPlugin shows the same for pytest.
func TestTransformer(t *testing.T) {
	t.Parallel()
	const iterations, bytes = "24", "576.0 KiB"
	line := lineMarked(t, "small_transformer.py", "leak")
	marked := edited(t, "small_transformer.py", "import close_device, open_device", "import close_device, open_device; from marks import mark",
		"x = ttnn.reshape(ttnn.embedding(", `mark("step"); x = ttnn.reshape(ttnn.embedding(`)
	for _, what := range []string{"clean", "leaking"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			leaking := what == "leaking"
			file := filepath.Join(t.TempDir(), "model.ttmem")
			under := setup(t, "0.81.1", "3.10").Command(t.Context(), rig.N150, marked, what, iterations)
			run := exec.Command(ttmem, append([]string{"run", "-o", file, "--", under.Path}, under.Args[1:]...)...)
			run.Env = storyEnviron(t, under.Env, rig.N150, t.TempDir())
			out, err := run.CombinedOutput()
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
			report, _, _ := strings.Cut(string(out), "Peak of each region") // which also has weights
			_, report, _ = strings.Cut(report, "\n\n")                      // the summary has the tightest operation
			qt.Check(t, qt.Equals(strings.Contains(report, "No leaks found"), !leaking), qt.Commentf("%s", out))
			qt.Check(t, qt.Equals(strings.Contains(report, bytes+"   "+iterations+" buffers  "+line+" result"), leaking), qt.Commentf("%s", out))
			qt.Check(t, qt.Equals(strings.Contains(report, "small_transformer.py"), leaking), qt.Commentf("%s", out))

			page, stderr, status := leaksOf(t, ".", []string{"--fail-above", "0", file})
			if leaking {
				qt.Check(t, qt.Equals(status, 3))
				qt.Assert(t, qt.HasLen(page.Leaks, 1), qt.Commentf("%+v", page.Leaks))
				qt.Check(t, qt.Equals(page.Leaks[0].Name, line+" result · ttnn.add"))
			} else {
				qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
				qt.Check(t, qt.HasLen(page.Leaks, 0), qt.Commentf("%+v", page.Leaks))
			}

			stdout, stderr, status := runTtmem(t, nil, "top", "--once", file)
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", stderr))
			qt.Check(t, qt.Equals(strings.Contains(stdout, line), leaking), qt.Commentf("%s", stdout))
			growsInTop(t, file, line, leaking)
		})
	}
}

// growsInTop checks what grew in ten iterations in top: the leak, or nothing.
func growsInTop(t *testing.T, file, line string, leaking bool) {
	term := startTerminal(t, 110, 30, os.Environ(), ttmem, "top", file)
	if leaking {
		term.expect("largest leak of DRAM") // near the end, where it has most
		for range 12 {
			term.press("N")
		}
		still, last := 0, "" // several keys at once move at once, later
		waitFor(t, "the screen to be still", func() bool {
			if still++; term.screen() != last {
				still, last = 0, term.screen()
			}
			return still == 20
		})
	} else {
		term.expect("peak of L1") // in the first iteration
		term.press("n")
	}
	term.expect("mark step")
	term.press("m")
	term.expect("GROWTH")
	for range 10 {
		term.press("n")
	}
	grown := regexp.MustCompile(`\+\d.*`) // in rows of the list
	waitFor(t, "ten iterations to be shown", func() bool {
		list := grown.FindAllString(term.screen(), -1)
		if !leaking {
			return len(list) == 0
		}
		return len(list) == 1 && regexp.MustCompile(`^\+240\.0 KiB .*DRAM +`+regexp.QuoteMeta(line)+" ").MatchString(list[0])
	})
	term.press("q")
	term.end("0")
}
