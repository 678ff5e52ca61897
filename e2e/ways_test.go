package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// ways are how people install ttmem: what root does, what a user does, and more that the user then has, in a shell.
var ways = map[string]struct{ root, user, more string }{
	"pip": {user: `"$BASE" -m venv venv; PATH=$PWD/venv/bin:$PATH; pip install --quiet --no-index --no-deps "$DIST"/*.whl`, more: `
export PYTHONPATH=$PYTHONPATH:$NOTEBOOK PYTHONDONTWRITEBYTECODE=1 JUPYTER_PLATFORM_DIRS=1 HF_HUB_OFFLINE=1
python -m nbconvert --to notebook --execute --output-dir . "$STEPS"
python -c 'import json
for cell in json.load(open("steps.ipynb"))["cells"]:
    for out in cell["outputs"]: print(out.get("text") and "".join(out["text"]))'
python -m pytest -q -n 2 -p no:cacheprovider --ttmem "$LIMITS" && exit 1 || test $? = 1
`},
	"deb":     {root: `dpkg -i "$DIST"/*.deb`},
	"tarball": {user: `mkdir .local; tar -C .local -xf "$DIST"/*.tar.gz; PATH=$PWD/.local/bin:$PATH`},
}

// TestWays plays what README.md begins with, in an empty account of a user who is not root: the program is installed in
// each way, and traces with the host's service, and without one with sudo. Packages, and the rules of sudo, are of a
// mount namespace of the test.
func TestWays(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t)
	dist := release(t)
	base, err := filepath.EvalSymlinks(u.env.Python)
	qt.Assert(t, qt.IsNil(err))
	notebook, err := exec.Command(notebookPython(t, "3.10"), "-c", "import site; print(site.getsitepackages()[0], end='')").Output()
	qt.Assert(t, qt.IsNil(err))
	exports, err := u.env.Exports(rig.N150)
	qt.Assert(t, qt.IsNil(err))
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir() // of the overlays
			home := filepath.Join(u.dir, name)
			qt.Assert(t, qt.IsNil(os.Mkdir(home, 0o755)))
			qt.Assert(t, qt.IsNil(os.Chown(home, nobody, nobody)))
			session := strings.Join(exports, "\n") + "\nset -e; cd; " + way.user + `
ttmem --version
ttmem run -o service.ttmem -- python "$DEMO"
ttmem report service.ttmem >/dev/null
TTMEM_SOCKET=$HOME/none.sock ttmem run -o sudo.ttmem -- python "$DEMO"
` + way.more
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-ec", `for d in usr var etc; do
  mkdir -p "$WORK/$d/up" "$WORK/$d/work"
  mount -t overlay overlay -o "lowerdir=/$d,upperdir=$WORK/$d/up,workdir=$WORK/$d/work" "/$d"
done
echo 'nobody ALL=(root) NOPASSWD: ALL' >/etc/sudoers
`+way.root+`
exec setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override sh -c "$0"`, session)
			cmd.Env = testEnviron([]string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + home, "LANG=C.UTF-8",
				"WORK=" + work, "DIST=" + dist, "BASE=" + base, "DEMO=" + program(t, "demo.py"), "TTMEM_SOCKET=" + s.socket, "PYTHONPATH=" + u.env.SitePackages,
				"NOTEBOOK=" + string(notebook), "STEPS=" + program(t, "steps.ipynb"), "LIMITS=" + program(t, "test_limits.py"),
			}, rig.N150, home)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%s", &out))
			if way.more != "" {
				qt.Check(t, qt.Matches(out.String(), `(?s).*step kept: .* s, peak DRAM 1\.5 MiB, 1\.5 MiB left\n *1\.5 MiB  3 in DRAM  .*`))
				qt.Check(t, qt.StringContains(out.String(), "1.5 MiB unfreed exceeds limit_leaks = 64.0 KiB:"))
				t.Log(out.String())
			}
			for _, file := range []string{"service.ttmem", "sudo.ttmem"} {
				u.checkRecording(t, filepath.Join(name, file))
			}
		})
	}
}
