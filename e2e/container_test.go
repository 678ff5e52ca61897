package e2e

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// A library that is replaced under running processes, as pip does it, is still traced in
// those, and is traced in new ones.
func TestUpgradedLibrary(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	dir := filepath.Dir(env.Library)
	own := filepath.Join(t.TempDir(), "lib")
	out, err := exec.Command("cp", "-a", dir, own).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	h := traceHost(t)
	// a mount namespace in which the copy replaces the libraries
	hold := env.Command(context.Background(), "n150", program(t, "hold.py"), "3", "512", "wait")
	before := under(t, env, hold, "unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, own, dir)
	before.expect(t, "opened")

	library, next := filepath.Join(own, filepath.Base(env.Library)), filepath.Join(own, "next")
	out, err = exec.Command("cp", "-a", library, next).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Assert(t, qt.IsNil(os.Rename(next, library)))
	hold = env.Command(context.Background(), "n150", program(t, "hold.py"), "4", "512", "wait")
	after := under(t, env, hold, "nsenter", "--mount", "--target", strconv.Itoa(before.Process.Pid), "--")
	after.expect(t, "opened")
	for _, p := range []*target{before, after} {
		p.next()
		p.expect(t, "holding")
	}
	h.holds(t, before.Process.Pid, 3)
	h.holds(t, after.Process.Pid, 4)
	for _, p := range []*target{before, after} {
		p.stdin.Close()
		qt.Check(t, qt.IsNil(p.Wait()))
		h.ended(t, p.Process.Pid, 1)
	}
	qt.Check(t, qt.Equals(kinds(h.of(t, before.Process.Pid), event.Alloc), 3))
	qt.Check(t, qt.Equals(kinds(h.of(t, after.Process.Pid), event.Alloc), 4))
}

// under starts a program inside others.
func under(t *testing.T, env *rig.Env, c *exec.Cmd, args ...string) *target {
	t.Helper()
	p := &target{env: env, Cmd: exec.Command(args[0], append(append(args[1:], c.Path), c.Args[1:]...)...)}
	p.Dir = t.TempDir()
	p.Env = testEnviron(c.Env, "n150", p.Dir)
	p.start(t)
	t.Cleanup(func() { p.stdin.Close() }) // programs that remain end with it
	return p
}

// Processes in containers of one image share the library's inode under different device
// numbers. Each is reported with its container, its pod and its id in there, and each
// allocation once.
func TestContainers(t *testing.T) {
	env := setup(t, "0.81.1", "3.10")
	const pod = "8f1d6f2e-0c4b-4a59-9d2e-3b7c5a6e1f00"
	h := traceHost(t)
	lib := filepath.Dir(env.Library)
	type container struct {
		*target
		id, pod string
		pid     int
	}
	var containers []container
	for i, where := range []string{"docker-%s.scope", "kubepods.slice/kubepods-pod" + strings.ReplaceAll(pod, "-", "_") + ".slice/cri-containerd-%s.scope"} {
		c := container{id: randomID()}
		if i == 1 {
			c.pod = pod
		}
		group := makeCgroup(t, fmt.Sprintf(where, c.id))
		layer := t.TempDir()
		for _, dir := range []string{"upper", "work"} {
			qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(layer, dir), 0o755)))
		}
		hold := env.Command(context.Background(), "n150", program(t, "hold.py"), strconv.Itoa(3+i), "512")
		c.target = under(t, env, hold, "sh", "-c",
			`echo $$ > "$0/cgroup.procs" && exec unshare --mount --pid --fork sh -c '
			mount -t overlay none -o "lowerdir=$0,upperdir=$1/upper,workdir=$1/work" "$0" && shift && exec "$@"' "$@"`,
			group, lib, layer)
		containers = append(containers, c)
	}
	for i := range containers {
		c := &containers[i]
		c.expect(t, "holding")
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid))
		qt.Assert(t, qt.IsNil(err))
		c.pid, err = strconv.Atoi(strings.TrimSpace(string(children)))
		qt.Assert(t, qt.IsNil(err))
		h.holds(t, c.pid, 3+i)
	}
	for i, c := range containers {
		c.stdin.Close()
		qt.Check(t, qt.IsNil(c.Wait()))
		events := h.ended(t, c.pid, 1)
		start := events[0]
		qt.Check(t, qt.Equals(start.Kind, event.ProcessStart))
		qt.Check(t, qt.Equals(start.Start.Container, c.id))
		qt.Check(t, qt.Equals(start.Start.Pod, c.pod))
		qt.Check(t, qt.Equals(start.Start.ContainerPID, 1))
		qt.Check(t, qt.Equals(kinds(events, event.DeviceOpen), 1))
		qt.Check(t, qt.Equals(kinds(events, event.Alloc), 3+i))
	}
}

// randomID returns an id like those of container runtimes.
func randomID() string {
	var b [32]byte
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return hex.EncodeToString(b[:])
}

// makeCgroup makes a cgroup for a test.
func makeCgroup(t *testing.T, path string) string {
	t.Helper()
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.procs"); err != nil {
		root = "/sys/fs/cgroup/unified" // beside those of version 1
	}
	above := filepath.Join(root, "ttmem-test-"+randomID()[:8])
	group := filepath.Join(above, path)
	if err := os.MkdirAll(group, 0o755); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() {
		for dir := group; len(dir) >= len(above); dir = filepath.Dir(dir) {
			for range 100 { // its processes may not be gone yet
				if os.Remove(dir) == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
	})
	return group
}
