package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/record"
	"ttmem/e2e/browser"
	"ttmem/tracer/place"
)

// A program fails under a service and under a `ttmem run`, and both keep the recording and the
// page of its last failure, which Chromium shows with what was live. Those of run belong to the
// user behind sudo.
func TestAFailureIsKeptWithItsPage(t *testing.T) {
	dir := t.TempDir()
	ofService, ofRun := filepath.Join(dir, "service"), filepath.Join(dir, "run")
	s := startServer(t, "--crash-dir", ofService)
	env := setup(t, "0.81.1", "3.10")
	under := env.Command(t.Context(), "n150", program(t, "oom.py"), "raise")
	cmd := exec.Command(ttmem, append([]string{"run", "--no-record", "--crash-dir", ofRun, "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = append(testEnviron(under.Env, "n150", dir), "SUDO_UID=54321", "SUDO_GID=54321"), dir
	out, _ := cmd.CombinedOutput()
	qt.Assert(t, qt.Equals(cmd.ProcessState.ExitCode(), 1), qt.Commentf("%s", out))
	s.stop(t)

	b := browser.New(t, 1280, 900)
	for folder, owner := range map[string]int{ofService: os.Geteuid(), ofRun: 54321} {
		kept := record.NewestFailure(folder)
		page := record.PageOf(kept)
		qt.Assert(t, qt.Not(qt.Equals(page, "")), qt.Commentf("%s%s", out, s.said()))
		for _, path := range []string{kept, page} {
			info, err := os.Stat(path)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(info.Mode().Perm(), 0o600))
			qt.Check(t, qt.Equals(place.Owner(info), owner))
			t.Logf("%s: %d bytes", path, info.Size())
		}
		_, errs, status := runTtmem(t, nil, "oom", folder)
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.StringContains(errs, page+" shows it in a browser"))

		b.Call("Page.navigate", map[string]any{"url": "file://" + page})
		b.Wait("window.ttmem")
		qt.Check(t, qt.StringContains(b.Text("about"), "failed allocation: L1, PID "))
		qt.Check(t, qt.StringContains(b.Text("failureWay"), "It fits if you free "))
		qt.Check(t, qt.StringContains(b.Text("holderTable"), " fill ← "))
		var blocks int
		b.Eval("ttmem.failureMap.blocks().length", &blocks)
		qt.Check(t, qt.IsTrue(blocks > 10))
		b.Screenshot(filepath.Base(folder))
	}
	b.CheckQuiet()
	files, err := filepath.Glob(filepath.Join(dir, "*", ".*"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(files, 0), qt.Commentf("%s", strings.Join(files, " ")))
}
