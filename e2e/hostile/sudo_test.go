package hostile

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// TestServicesOfSudoAreTheUsersOwn: a stranger who waits for the services that sudo starts for an ordinary user's commands,
// which are in the command lines that all can read, neither stops them nor reaches them.
func TestServicesOfSudoAreTheUsersOwn(t *testing.T) {
	env, err := rig.Setup(t.Context(), rig.Options{Version: rig.DefaultVersion, Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	stranger, u := newUser(t, 13), newUser(t, 14)
	waits := filepath.Join(stranger.home, "sudo.py")
	out, err := exec.Command("install", "-m", "755", "programs/sudo.py", waits).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	log, err := os.Create(filepath.Join(stranger.home, "log"))
	qt.Assert(t, qt.IsNil(err))
	defer log.Close()
	cmd := stranger.command("/usr/bin/python3", "-B", waits)
	cmd.Stdout, cmd.Stderr = log, log
	qt.Assert(t, qt.IsNil(start(cmd)))
	go cmd.Wait()
	said := func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
	if !tracetest.Eventually(time.Minute*patience, func() bool { return strings.Contains(said(), "attacking") }) {
		t.Fatalf("the attack does not begin: %s", said())
	}

	program, err := filepath.Abs("../programs/one.py")
	qt.Assert(t, qt.IsNil(err))
	// the users need names for sudo, and a folder that both may write to
	shared := filepath.Join(public, "tmp")
	qt.Assert(t, qt.IsNil(os.Mkdir(shared, 0o777)))
	qt.Assert(t, qt.IsNil(os.Chmod(shared, os.ModeSticky|0o777)))
	etc := t.TempDir()
	for name, text := range map[string]string{
		"sudoers": "victim ALL=(root) NOPASSWD: ALL\n",
		"passwd":  fmt.Sprintf("root:x:0:0::/root:/bin/sh\nvictim:x:%d:%[1]d::%s:/bin/sh\n", u.uid, u.home),
		"shadow":  "victim:*:19000:0:99999:7:::\n",
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(etc, name), []byte(text), 0o440)))
	}
	qt.Assert(t, qt.IsNil(os.Chmod(filepath.Join(etc, "passwd"), 0o644)))
	as := u.ttnn(env)
	for range 3 {
		run := exec.Command("unshare", "--mount", "sh", "-ec", `for f in sudoers passwd shadow; do mount --bind "$ETC/$f" /etc/$f; done
cd; exec setpriv --reuid=$VICTIM --regid=$VICTIM --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override "$@"`,
			"sh", ttmem, "run", "--force", "-o", "one.ttmem", "--", env.Python, program)
		run.Env = append(as.Env, "ETC="+etc, fmt.Sprintf("VICTIM=%d", u.uid), "TMPDIR="+shared, "TTMEM_SOCKET="+filepath.Join(etc, "none.sock"))
		run.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		var out bytes.Buffer
		run.Stdout, run.Stderr = &out, &out
		err := run.Run()
		qt.Check(t, qt.IsNil(err), qt.Commentf("%s", &out))
	}
	qt.Check(t, qt.StringContains(said(), "Permission denied"))
	for _, word := range []string{"holds", "changed", "reached"} {
		qt.Check(t, qt.IsFalse(strings.Contains(said(), word)), qt.Commentf("%s", said()))
	}
	left := func() (list []string) {
		list, _ = filepath.Glob(filepath.Join(shared, "ttmem-*"))
		return list
	}
	tracetest.Eventually(time.Minute*patience, func() bool { return len(left()) == 0 })
	qt.Check(t, qt.HasLen(left(), 0))
}
