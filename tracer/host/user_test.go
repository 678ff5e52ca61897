package host_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// TestIdsOfANamespaceCountAsItsOwner: a user with a range of ids in /etc/subuid has one share.
func TestIdsOfANamespaceCountAsItsOwner(t *testing.T) {
	tracetest.NeedsRoot(t)
	for owner, want := range map[int]func(user int) bool{
		4242: func(user int) bool { return user == 4242 },
		0:    func(user int) bool { return user > 1<<33 },
	} {
		// the one inside makes a second namespace, of which an id of the first one is the owner
		inside := exec.Command("setpriv", "--reuid", fmt.Sprint(owner), "--clear-groups", "unshare", "--user", "--keep-caps", "sh", "-c",
			"echo; read x; exec setpriv --reuid 7 --regid 7 --keep-groups unshare --user sh -c 'echo; read x'")
		in, err := inside.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
		out, err := inside.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(inside.Start()))
		answer := func() {
			_, err := out.Read(make([]byte, 1))
			qt.Assert(t, qt.IsNil(err))
		}
		answer()
		for _, ids := range []string{"uid_map", "gid_map"} {
			qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(host.ProcDir(inside.Process.Pid), ids), []byte("0 100000 100"), 0)))
		}
		fmt.Fprintln(in)
		answer()
		pid := inside.Process.Pid
		status, err := os.ReadFile(filepath.Join(host.ProcDir(pid), "status"))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(string(status), "Uid:\t100007\t100007\t100007\t100007\n"))
		qt.Check(t, qt.IsTrue(want(host.RealUser(pid))), qt.Commentf("%d", host.RealUser(pid)))
		qt.Check(t, qt.IsTrue(want(host.UserOfClient(pid, 100007))))
		in.Close()
		_ = inside.Wait()
		qt.Check(t, qt.Equals(host.RealUser(pid), -1))
		qt.Check(t, qt.Equals(host.UserOfClient(pid, 100007), host.NoProcess))
	}
	qt.Check(t, qt.Equals(host.RealUser(os.Getpid()), unix.Getuid()))
}
