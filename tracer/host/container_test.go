package host

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

const (
	innerID = "1f3a8f0c5d2b4e6f7a8b9c0d1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6b7c8d9e0f"
	outerID = "9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a2f1e0d9c8b7a6f5e4d3c2b1a0f9e8d"
	podUID  = "8f1d6f2e-0c4b-4a59-9d2e-3b7c5a6e1f00"
)

func TestParseCgroups(t *testing.T) {
	underscored := strings.ReplaceAll(podUID, "-", "_")
	for name, c := range map[string]struct{ text, container, pod string }{
		"no container, v2":                   {"0::/user.slice/user-1000.slice/session-3.scope\n", "", ""},
		"a service":                          {"0::/system.slice/docker.service\n", "", ""},
		"root":                               {"0::/\n", "", ""},
		"no container, v1":                   {"12:memory:/user.slice\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n", "", ""},
		"another hash in a cgroup's name":    {"4:memory:/jobs/d0c755de89da458ccab3987832bcf373\n", "", ""},
		"Docker, systemd, v2":                {"0::/system.slice/docker-" + innerID + ".scope\n", innerID, ""},
		"Docker, cgroupfs, v2":               {"0::/docker/" + innerID + "\n", innerID, ""},
		"Docker, v1":                         {"12:cpuset:/docker/" + innerID + "\n11:net_cls,net_prio:/docker/" + innerID + "\n1:name=systemd:/docker/" + innerID + "\n", innerID, ""},
		"Docker, hybrid":                     {"3:memory:/system.slice/docker-" + innerID + ".scope\n0::/system.slice/docker-" + innerID + ".scope\n", innerID, ""},
		"Docker, v1 with one controller":     {"2:cpu:/\n1:devices:/docker/" + innerID + "\n0::/system.slice/containerd.service\n", innerID, ""},
		"Docker, init inside":                {"0::/system.slice/docker-" + innerID + ".scope/init.scope\n", innerID, ""},
		"Docker in Docker":                   {"0::/docker/" + outerID + "/docker/" + innerID + "\n", innerID, ""},
		"Docker, rootless":                   {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-" + innerID + ".scope\n", innerID, ""},
		"nerdctl":                            {"0::/system.slice/nerdctl-" + innerID + ".scope\n", innerID, ""},
		"containerd, a namespace's cgroup":   {"0::/default/" + innerID + "\n", innerID, ""},
		"podman":                             {"0::/machine.slice/libpod-" + innerID + ".scope/container\n", innerID, ""},
		"podman, rootless":                   {"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + innerID + ".scope/container\n", innerID, ""},
		"podman, cgroupfs":                   {"0::/libpod_parent/libpod-" + innerID + "\n", innerID, ""},
		"podman, in a pod of its own":        {"0::/machine.slice/machine-libpod_pod_" + outerID + ".slice/libpod-" + innerID + ".scope\n", innerID, ""},
		"podman's conmon":                    {"0::/machine.slice/libpod-conmon-" + innerID + ".scope\n", "", ""},
		"CRI-O's conmon":                     {"0::/kubepods.slice/kubepods-pod" + underscored + ".slice/crio-conmon-" + innerID + ".scope\n", "", podUID},
		"Kubernetes, containerd, systemd":    {"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + innerID + ".scope\n", innerID, podUID},
		"Kubernetes, guaranteed":             {"0::/kubepods.slice/kubepods-pod" + underscored + ".slice/cri-containerd-" + innerID + ".scope\n", innerID, podUID},
		"Kubernetes, CRI-O, systemd":         {"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice/crio-" + innerID + ".scope/container\n", innerID, podUID},
		"Kubernetes, Docker, systemd, v1":    {"5:memory:/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + underscored + ".slice/docker-" + innerID + ".scope\n", innerID, podUID},
		"Kubernetes, cgroupfs, v1":           {"9:pids:/kubepods/besteffort/pod" + podUID + "/" + innerID + "\n1:name=systemd:/kubepods/besteffort/pod" + podUID + "/" + innerID + "\n", innerID, podUID},
		"Kubernetes, cgroupfs, v2":           {"0::/kubepods/pod" + podUID + "/" + innerID + "\n", innerID, podUID},
		"Kubernetes, CRI-O, cgroupfs":        {"0::/kubepods/burstable/pod" + podUID + "/crio-" + innerID + "\n", innerID, podUID},
		"Kubernetes, a static pod":           {"0::/kubepods/burstable/pod6b1c1e1e2b3c4d5e6f708192a3b4c5d6/" + innerID + "\n", innerID, "6b1c1e1e2b3c4d5e6f708192a3b4c5d6"},
		"Kubernetes, drivers at odds":        {"0::/system.slice/containerd.service/kubepods-burstable-pod" + underscored + ".slice:cri-containerd:" + innerID + "\n", innerID, podUID},
		"Kubernetes in Docker":               {"0::/docker/" + outerID + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod" + underscored + ".slice/cri-containerd-" + innerID + ".scope\n", innerID, podUID},
		"another cgroup namespace, systemd":  {"0::/../cri-containerd-" + innerID + ".scope\n", innerID, ""},
		"another cgroup namespace, cgroupfs": {"0::/../../pod" + podUID + "/" + innerID + "\n", innerID, podUID},
		"another cgroup namespace, pod":      {"0::/../../kubepods-pod" + underscored + ".slice/cri-containerd-" + innerID + ".scope\n", innerID, podUID},
		"above the cgroup namespace":         {"0::/../../../..\n", "", ""},
		"LXC":                                {"0::/lxc.payload.web-1/system.slice/x.service\n", "web-1", ""},
		"LXC 3":                              {"0::/lxc.payload/web-1\n", "web-1", ""},
		"LXC, v1, Proxmox":                   {"7:memory:/lxc/101/ns/system.slice\n", "101", ""},
		"LXC's monitor":                      {"0::/lxc.monitor.web-1\n", "", ""},
		"systemd-nspawn, a service":          {`0::/machine.slice/systemd-nspawn@build\x2dbox.service/payload/system.slice/x.service` + "\n", "build-box", ""},
		"systemd-nspawn, from a shell":       {`0::/machine.slice/machine-build\x2dbox.scope/payload` + "\n", "build-box", ""},
		"Docker in systemd-nspawn":           {"0::/machine.slice/systemd-nspawn@box.service/payload/system.slice/docker-" + innerID + ".scope\n", innerID, ""},
		"a virtual machine":                  {`0::/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator` + "\n", "", ""},
		"colons in a path":                   {"1:name=systemd:/a:b/docker/" + innerID + "\n", innerID, ""},
		"not the file's format":              {"\nx\n0:\n::\n", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			container, pod := parseCgroups(c.text)
			qt.Check(t, qt.Equals(container, c.container))
			qt.Check(t, qt.Equals(pod, c.pod))
		})
	}
}

func FuzzParseCgroups(f *testing.F) {
	f.Add("0::/machine.slice/systemd-nspawn@a\\x2db.service/payload\n")
	f.Add("0::/kubepods.slice/kubepods-pod8f1d6f2e_0c4b_4a59_9d2e_3b7c5a6e1f00.slice/crio-" + innerID + ".scope\n")
	f.Fuzz(func(t *testing.T, text string) {
		container, _ := parseCgroups(text)
		qt.Check(t, qt.IsFalse(strings.ContainsRune(container, '/')))
	})
}

func TestParseStatus(t *testing.T) {
	for name, c := range map[string]struct {
		text     string
		uid, pid int
	}{
		"on the host":      {"Name:\tpython\nUid:\t0\t1000\t0\t0\nNStgid:\t4242\nNSpid:\t4243\n", 1000, 0},
		"in a container":   {"Uid:\t100000\t100000\t100000\t100000\nNStgid:\t4242\t7\n", 100000, 7},
		"two levels below": {"Uid:\t5\t5\t5\t5\nNStgid:\t4242\t70\t1\n", 5, 1},
		"an odd name":      {"Name:\tUid:\nUid:\t5\t6\t5\t5\n", 6, 0},
		"nothing":          {"", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			uid, pid := parseStatus(c.text)
			qt.Check(t, qt.Equals(uid, c.uid))
			qt.Check(t, qt.Equals(pid, c.pid))
		})
	}
}

// FuzzParseStatus: whatever a process calls itself, its user is the one that the kernel says.
// The kernel escapes newlines in the name.
func FuzzParseStatus(f *testing.F) {
	f.Add("python", "State:\tS (sleeping)")
	f.Add("Uid:\t0\t0\t0\t0", "NStgid:\t4242\t7")
	f.Fuzz(func(t *testing.T, name, rest string) {
		parseStatus(rest)
		name = strings.ReplaceAll(name, "\n", "\\n")
		uid, pid := parseStatus("Name:\t" + name + "\nUid:\t0\t1000\t0\t0\nNStgid:\t4242\t7\n" + rest)
		qt.Check(t, qt.Equals(uid, 1000))
		qt.Check(t, qt.Equals(pid, 7))
	})
}

// FuzzHasEnded: a process may call itself what the line of one that has ended looks like.
func FuzzHasEnded(f *testing.F) {
	f.Add("python", "")
	f.Add("x) Z 1 (", "7 (x) Z")
	f.Fuzz(func(t *testing.T, name, text string) {
		hasEnded(text)
		qt.Check(t, qt.IsFalse(hasEnded("7 ("+name+") S 1 7 7 0")))
		qt.Check(t, qt.IsTrue(hasEnded("7 ("+name+") Z 1 7 7 0")))
	})
}

// FuzzBeginningOf: a process may call itself what such a line looks like.
func FuzzBeginningOf(f *testing.F) {
	const rest = ") S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 1234 5"
	f.Add("python", "")
	f.Add("x"+rest+" (", "7 (x"+rest)
	f.Add("", "7 (x) S 1 7 7 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0 9223372036854775807")
	f.Fuzz(func(t *testing.T, name, text string) {
		ns, ok := beginningOf(text)
		qt.Check(t, qt.IsTrue(ns >= 0 || !ok))
		ns, ok = beginningOf("7 (" + name + rest)
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(ns, 12.34e9))
	})
}

// TestBeganAfter: a process did not have its id before it began. That it has ended says nothing.
func TestBeganAfter(t *testing.T) {
	const tick = 10e6
	before := Now()
	time.Sleep(2 * tick) // so that it begins in another tick
	p := exec.Command("sleep", "1000")
	qt.Assert(t, qt.IsNil(p.Start()))
	defer p.Wait()
	defer p.Process.Kill()
	qt.Check(t, qt.IsTrue(BeganAfter(p.Process.Pid, before)))
	qt.Check(t, qt.IsFalse(BeganAfter(p.Process.Pid, Now())))
	qt.Check(t, qt.IsFalse(BeganAfter(os.Getpid(), before)))
	qt.Check(t, qt.IsFalse(BeganAfter(p.Process.Pid, 0)))
	qt.Check(t, qt.IsFalse(BeganAfter(1<<30, before))) // no process
	readers := NewReaders()
	defer readers.Close()
	qt.Check(t, qt.Equals(readers.Of(p.Process.Pid).CommandLine(t.Context(), before), ""))
}

// The identity of an ended process is empty.
func TestIdentityOfEnded(t *testing.T) {
	p := exec.Command("true")
	qt.Assert(t, qt.IsNil(p.Run()))
	qt.Check(t, qt.Equals(IdentityOf(p.Process.Pid), Identity{}))
}

// The user of a process is its current one.
func TestIdentityOf(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to run a process as another user")
	}
	p := exec.Command("sleep", "3600")
	p.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	qt.Assert(t, qt.IsNil(p.Start()))
	defer func() { p.Process.Kill(); p.Wait() }()
	qt.Check(t, qt.Equals(IdentityOf(p.Process.Pid).UID, 65534))
	qt.Check(t, qt.Equals(IdentityOf(p.Process.Pid).ContainerPID, 0))
}

// A process whose first thread has ended is read through another thread, and is still found
// by its mappings.
func TestFirstThreadEnded(t *testing.T) {
	const program = `
import ctypes, sys, threading
threading.Thread(target=sys.stdin.read).start()
ctypes.CDLL(None).syscall(60, 0) # exit: of this thread alone
`
	p := exec.Command("python3", "-c", program)
	stdin, err := p.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(p.Start()))
	defer func() { p.Process.Kill(); p.Wait() }()
	own := fmt.Sprintf("/proc/%d", p.Process.Pid)
	for range 6000 {
		if isZombie(own) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}

	qt.Check(t, qt.Not(qt.Equals(ProcDir(p.Process.Pid), own)))
	qt.Check(t, qt.IsFalse(Ended(p.Process.Pid)))
	maps, err := new(Proc).FileMappings(p.Process.Pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(len(maps) > 0))
	file, err := new(Proc).OpenMapped(p.Process.Pid, maps[0].Start, maps[0].End)
	qt.Assert(t, qt.IsNil(err))
	file.Close()
	readers := NewReaders()
	defer readers.Close()
	qt.Check(t, qt.StringContains(readers.Of(p.Process.Pid).CommandLine(t.Context(), Now()), "CDLL"))

	stdin.Close()
	for range 6000 { // it has no parent that waits for it yet
		if Ended(p.Process.Pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("all of its threads have ended, but not the process")
}
