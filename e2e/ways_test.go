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

// ways are how people install ttmem: what root does, and what a user does, in a shell.
var ways = map[string]struct{ root, user string }{
	"pip":     {user: `"$BASE" -m venv venv; PATH=$PWD/venv/bin:$PATH; pip install --quiet --no-index --no-deps "$DIST"/*.whl`},
	"deb":     {root: `dpkg -i "$DIST"/*.deb`},
	"tarball": {user: `mkdir .local; tar -C .local -xf "$DIST"/*.tar.gz; PATH=$PWD/.local/bin:$PATH`},
}

// TestWays plays what README.md begins with, in an empty account of a user who is not root: the program is installed in
// each way, and traces with the host's service, and without one with sudo. Packages, and the rules of sudo, are of a
// mount namespace of the test.
func TestWays(t *testing.T) {
	s := startServer(t)
	u := newOrdinaryUser(t)
	s.discover(t, u.env)
	dist := release(t)
	base, err := filepath.EvalSymlinks(u.env.Python)
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
`
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
			}, rig.N150, home)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%s", &out))
			for _, file := range []string{"service.ttmem", "sudo.ttmem"} {
				u.checkRecording(t, filepath.Join(name, file))
			}
		})
	}
}
