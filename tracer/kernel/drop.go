package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"unsafe"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
	"ttmem/tracer/place"
)

// DropPrivileges gives up root's capabilities for ever, except those for tracing, for writing these
// files at any time, and others. Call it before New: it waits for all threads, and a traced process
// may stop one. An ordinary user keeps everything: children of this process get it from there.
func DropPrivileges(written []string, others ...int) error {
	if os.Geteuid() != 0 {
		return nil
	}
	has, err := host.PermittedCapabilities()
	if err == nil {
		err = host.KeepCapabilities(remaining(has, written) | host.Capabilities(others...))
	}
	if err != nil {
		return fmt.Errorf("ttmem keeps all of root's capabilities: %w", err)
	}
	return nil
}

// remaining returns the capabilities that are needed from now on.
func remaining(has host.CapabilitySet, written []string) host.CapabilitySet {
	host.UseSysAdmin()
	keep := host.Capabilities(lease.bit) | raiseLimits()
	for _, c := range needed {
		keep |= host.Capabilities(c.bit)
		if !has.Has(c.bit) {
			keep |= host.Capabilities(unix.CAP_SYS_ADMIN) // which may stand for it
		}
	}
	for _, path := range written {
		keep |= host.Capabilities(place.Capabilities(path)...)
	}
	perfProbes := needsPerfProbes()
	host.TryCapabilities(keep&has, func() {
		if errors.Is(openPerfEvent(), unix.EACCES) || perfProbes && errors.Is(openPerfProbe(), unix.EACCES) {
			keep |= host.Capabilities(unix.CAP_SYS_ADMIN)
		}
	})
	if host.OnlyOwnerExecutes() {
		keep |= host.Capabilities(unix.CAP_DAC_OVERRIDE) // to start readers
	}
	return keep
}

// raiseLimits raises the limits that some capabilities exceed. It returns the capabilities whose
// limit cannot be raised.
func raiseLimits() (keep host.CapabilitySet) {
	for _, l := range []struct {
		resource, capability int
		value                uint64
	}{
		{unix.RLIMIT_NICE, unix.CAP_SYS_NICE, 20 - host.RaisedNiceness},
		{unix.RLIMIT_MEMLOCK, unix.CAP_IPC_LOCK, unix.RLIM_INFINITY}, // for buffers of perf events
	} {
		var now unix.Rlimit
		err := unix.Getrlimit(l.resource, &now)
		if err == nil && now.Cur < l.value {
			err = unix.Setrlimit(l.resource, &unix.Rlimit{Cur: l.value, Max: max(l.value, now.Max)})
		}
		if err != nil {
			keep |= host.Capabilities(l.capability)
		}
	}
	return keep
}

// needsPerfProbes reports whether some probes have to be perf events.
func needsPerfProbes() bool {
	ruledOut, err := without()
	return err != nil || ruledOut[featureUprobeMulti] || features.HaveBPFLinkUprobeMulti() != nil || tryOtherThread() != nil
}

// openPerfProbe opens a perf event for a probe in no file as a trial: the kernel checks the privileges
// first. Linux 6.16, and the stable kernels since then, require CAP_SYS_ADMIN.
func openPerfProbe() error {
	text, err := os.ReadFile("/sys/bus/event_source/devices/uprobe/type")
	if err != nil {
		return err
	}
	kind, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return err
	}
	return tryPerfEvent(uint32(kind), 0, 0, -1)
}

// openPerfEvent opens a perf event as a trial. If the sysctl perf_event_paranoid is over 2, kernels
// of Debian and Ubuntu require CAP_SYS_ADMIN.
func openPerfEvent() error {
	return tryPerfEvent(unix.PERF_TYPE_SOFTWARE, unix.PERF_COUNT_SW_DUMMY, -1, 0)
}

func tryPerfEvent(kind uint32, config uint64, pid, cpu int) error {
	attr := unix.PerfEventAttr{Type: kind, Config: config, Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{}))}
	fd, err := unix.PerfEventOpen(&attr, pid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err == nil {
		unix.Close(fd)
	}
	return err
}
