package host

import (
	"cmp"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Identity is the user that a process runs as, its container and Kubernetes pod, and its id
// in its own PID namespace. Fields that cannot be read because the process has ended stay
// empty.
type Identity struct {
	UID            int
	Container, Pod string
	ContainerPID   int
}

// IdentityOf reads the identity of a process.
func IdentityOf(pid int) Identity {
	var id Identity
	dir := ProcDir(pid)
	if text, err := os.ReadFile(dir + "/status"); err == nil {
		id.UID, id.ContainerPID = parseStatus(string(text))
	}
	if text, err := os.ReadFile(dir + "/cgroup"); err == nil {
		id.Container, id.Pod = parseCgroups(string(text))
	}
	return id
}

// parseStatus reads the effective user from a /proc/PID/status, and the id in the process's
// innermost PID namespace; 0 if that is the reader's own.
func parseStatus(text string) (uid, innerPID int) {
	// real, effective, saved, of the file system
	if ids := statusOf(text, "Uid"); len(ids) > 1 {
		uid, _ = strconv.Atoi(ids[1])
	}
	// in the reader's namespace, then in each one below it
	if ids := statusOf(text, "NStgid"); len(ids) > 1 {
		innerPID, _ = strconv.Atoi(ids[len(ids)-1])
	}
	return uid, innerPID
}

// Container runtimes name the cgroup of a container after it: Docker, containerd, CRI-O and
// podman use its id of 64 hexadecimal digits, alone or between the runtime's name and
// ".scope". A conmon is the host process that monitors a container.
var (
	runtimeCgroup = regexp.MustCompile(`^([a-z][a-z-]*-)?([0-9a-f]{64})(\.scope)?$`)
	// kubelet's, with cgroupfs and with systemd, where dashes in the uid become underscores
	// because a dash nests slices; the uid of a static pod is a hash
	podCgroup = regexp.MustCompile(`^(?:[a-z-]*kubepods[a-z-]*-)?pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})(?:\.slice)?$`)
)

// parseCgroups finds the container and the pod in a /proc/PID/cgroup. Its lines are
// hierarchy:controllers:path: one with cgroup v2, one per hierarchy with v1. The innermost
// container counts.
func parseCgroups(text string) (container, pod string) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		c, p := parseCgroup(parts[2])
		container, pod = cmp.Or(container, c), cmp.Or(pod, p)
	}
	return container, pod
}

// parseCgroup finds the innermost container and pod in the path of a cgroup. In a cgroup
// namespace the path starts at the namespace's root, and leads out of it with "..".
func parseCgroup(path string) (container, pod string) {
	var parent string
	// runc in cgroupfs mode, under a kubelet in systemd mode, makes one name of
	// "slice:runtime:id"
	for _, name := range strings.FieldsFunc(path, func(r rune) bool { return r == '/' || r == ':' }) {
		if c := containerName(parent, name); c != "" {
			container = c
		}
		if m := podCgroup.FindStringSubmatch(name); m != nil {
			pod = strings.ReplaceAll(m[1], "_", "-")
		}
		parent = name
	}
	return container, pod
}

// containerName returns the id or name of a cgroup's container; "" if the cgroup is not a
// container's.
func containerName(parent, name string) string {
	if m := runtimeCgroup.FindStringSubmatch(name); m != nil {
		if strings.HasSuffix(m[1], "conmon-") {
			return ""
		}
		return m[2]
	}
	// LXC and Incus: lxc/NAME, lxc.payload/NAME and lxc.payload.NAME; the lxc.monitor
	// cgroups beside them are of the programs that monitor the containers
	if parent == "lxc" || parent == "lxc.payload" {
		return name
	}
	if machine, ok := strings.CutPrefix(name, "lxc.payload."); ok {
		return machine
	}
	// systemd-nspawn, as a service and from a shell, and other machines registered with
	// systemd-machined; virtual machines are not containers
	if machine, ok := cutBoth(name, "systemd-nspawn@", ".service"); ok {
		return unescapeUnit(machine)
	}
	if machine, ok := cutBoth(name, "machine-", ".scope"); ok && !strings.HasPrefix(machine, "qemu") {
		return unescapeUnit(machine)
	}
	return ""
}

// cutBoth returns the text between a prefix and a suffix.
func cutBoth(s, prefix, suffix string) (string, bool) {
	s, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return "", false
	}
	return strings.CutSuffix(s, suffix)
}

// unescapeUnit decodes systemd's escapes in the name of a unit, which are Go's: \x2d is a dash.
func unescapeUnit(name string) string {
	if plain, err := strconv.Unquote(`"` + name + `"`); err == nil {
		return plain
	}
	return name
}
