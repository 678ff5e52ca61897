package hostile

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
)

// user is an ordinary user: an id that nothing else on this host has, and a folder. The kernel
// needs no entry in /etc/passwd, so there is none to remove.
type user struct {
	uid  int
	home string
}

// subordinate is the first of the ids that attackers have beside their own, and subordinates their number.
const subordinate, subordinates = 1 << 31, 1000

// users are those of this test.
var users []*user

// newUser returns a user with an id that depends on this process, so that tests that run at
// the same time have other users.
func newUser(t *testing.T, n int) *user {
	u := &user{uid: 1<<30 + os.Getpid()*16 + n, home: filepath.Join(public, fmt.Sprintf("user%d", n))}
	if err := os.Mkdir(u.home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(u.home, u.uid, u.uid); err != nil {
		t.Fatal(err)
	}
	users = append(users, u)
	t.Cleanup(u.killAll)
	return u
}

// command is a command of the user, in its folder and in a session of its own.
func (u *user) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Dir = u.home
	cmd.Env = []string{"PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=" + u.home, "LANG=C.UTF-8"}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.uid)}, Setsid: true,
	}
	return cmd
}

// ttnn is a command that runs a program on the rig's ttnn as the user. The rig may lie in root's home:
// the shell's exec has the only capability, which is to read there.
func (u *user) ttnn(env *rig.Env, args ...string) *exec.Cmd {
	as := env.Command(context.Background(), rig.N150, args...)
	cmd := u.command("sh", append([]string{"-c", `exec "$0" "$@"`, as.Path}, args...)...)
	cmd.Err = as.Err
	cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_DAC_READ_SEARCH}
	cmd.Env = append(as.Env, "HOME="+u.home, "TT_METAL_CACHE="+u.home+"/kernels", "TT_METAL_LOGS_PATH="+u.home+"/logs", "TTMEM_MESH=1x1")
	return cmd
}

// killAll kills every process of the user at once, so that none can fork meanwhile. kill -1
// reaches what the caller may signal: as this user, that is only its own.
func (u *user) killAll() {
	_ = u.command("sh", "-c", "kill -KILL -1").Run()
}

// strays are the files in the user's folder that are not the user's: something that runs as
// root was led to write there.
func (u *user) strays() (list []string) {
	_ = filepath.WalkDir(u.home, func(path string, _ os.DirEntry, err error) error {
		var stat unix.Stat_t
		if err == nil && unix.Lstat(path, &stat) == nil && int(stat.Uid) != u.uid && (stat.Uid < subordinate || stat.Uid >= subordinate+subordinates) {
			list = append(list, strings.TrimPrefix(path, u.home))
		}
		return nil
	})
	return list
}
