package e2e

import (
	"fmt"
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

// A program fails under a service and under a `ttmem run`, and both keep the recording of its last
// failure, whose page Chromium shows with what was live. That of run belongs to the user behind sudo.
func TestAFailureIsKept(t *testing.T) {
	dir := t.TempDir()
	ofService, ofRun := filepath.Join(dir, "service"), filepath.Join(dir, "run")
	s := startServer(t, "--crash-dir", ofService)
	env := setup(t, "0.81.1", "3.10")
	s.discover(t, env) // so that the failure has call stacks
	under := env.Command(t.Context(), "n150", program(t, "oom.py"), "raise")
	cmd := exec.Command(ttmem, append([]string{"run", "--no-record", "--crash-dir", ofRun, "--", under.Path}, under.Args[1:]...)...)
	cmd.Env, cmd.Dir = append(testEnviron(under.Env, "n150", dir), "SUDO_UID=54321", "SUDO_GID=54321"), dir
	out, _ := cmd.CombinedOutput()
	qt.Assert(t, qt.Equals(cmd.ProcessState.ExitCode(), 1), qt.Commentf("%s", out))
	s.stop(t)
	said := map[string]string{ofService: s.said(), ofRun: string(out)}

	b := browser.New(t, 1280, 900)
	for folder, owner := range map[string]int{ofService: os.Geteuid(), ofRun: 54321} {
		kept := record.NewestFailure(folder)
		info, err := os.Stat(kept)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", said[folder]))
		qt.Check(t, qt.Equals(info.Mode().Perm(), 0o600))
		qt.Check(t, qt.Equals(place.Owner(info), owner))
		qt.Check(t, qt.StringContains(said[folder], fmt.Sprintf("`ttmem oom %s` says why, `ttmem html %s --to failure` makes a page", kept, kept)))
		_, errs, status := runTtmem(t, nil, "oom", folder)
		qt.Check(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
		page := filepath.Join(dir, filepath.Base(folder)+".html")
		_, errs, status = runTtmem(t, nil, "html", kept, "--to", "failure", "-o", page)
		qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))

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
