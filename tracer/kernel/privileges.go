package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
)

// A capability is a privilege of root that tracing uses.
type capability struct {
	bit       int
	name, use string
}

// needed are the capabilities without which nothing is traced. They are constant.
var needed = []capability{
	{unix.CAP_BPF, "CAP_BPF", "load BPF programs"},
	{unix.CAP_PERFMON, "CAP_PERFMON", "place probes, read memory in them, watch mappings"},
	{unix.CAP_CHECKPOINT_RESTORE, "CAP_CHECKPOINT_RESTORE", "open the file that a process maps"},
	{unix.CAP_SYS_PTRACE, "CAP_SYS_PTRACE", "see the mappings and the memory of other users' processes"},
	{unix.CAP_DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH", "read libraries and processes that are not open to all"},
}

// lease is needed for libraries of other users only. It is constant.
var lease = capability{unix.CAP_LEASE, "CAP_LEASE", "delay a program that overwrites a traced library in place"}

const notRoot = "not root: run it with sudo"

// Privileges checks this process's capabilities.
func Privileges() Feature {
	has := effective()
	var lacks []string
	for _, c := range needed {
		if !has.Has(c.bit) {
			lacks = append(lacks, fmt.Sprintf("%s (%s)", c.name, c.use))
		}
	}
	f := Feature{Name: "privileges", OK: len(lacks) == 0}
	switch {
	case len(lacks) == len(needed) && os.Geteuid() != 0:
		f.Detail = notRoot
	case !f.OK:
		f.Detail = "missing: " + strings.Join(lacks, ", ")
		if os.Geteuid() == 0 {
			f.Detail += "; give a container --privileged"
		}
	case !has.Has(lease.bit):
		f.Detail = fmt.Sprintf("all but %s (%s)", lease.name, lease.use)
	case os.Geteuid() == 0:
		f.Detail = "root"
	default:
		f.Detail = "the capabilities that tracing needs"
	}
	return f
}

// effective returns the capabilities of this process: with CAP_SYS_ADMIN, also those that it was split into.
func effective() host.CapabilitySet {
	has := host.EffectiveCapabilities()
	if has.Has(unix.CAP_SYS_ADMIN) {
		has |= host.Capabilities(unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE)
	}
	return has
}

// checkPrivileges is an error if this process may not trace.
func checkPrivileges() error {
	f := Privileges()
	switch {
	case f.OK:
		return nil
	case f.Detail == notRoot:
		return errors.New("tracing needs root: run it with sudo")
	}
	return errors.New("tracing needs capabilities; " + f.Detail)
}

// MaySudo reports whether this process is an ordinary user's, with none of the privileges, and can get them from sudo.
func MaySudo() bool {
	fixed, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	return err == nil && fixed == 0 && Privileges().Detail == notRoot
}

// MayTrace reports whether this process has the privileges to trace.
func MayTrace() bool { return Privileges().OK }
