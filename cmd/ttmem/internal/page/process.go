package page

import (
	"cmp"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
)

// FirstNs returns the time at which pages begin to count: the start of the first process. For
// live processes, or if not all processes are known, it is the start of tracing; 0 if neither is
// known.
func FirstNs(s *memory.Snapshot, live bool) uint64 {
	first := s.BeganNs
	if len(s.Processes) > 0 && (first == 0 || !live && ForgottenProcesses(s) == 0) {
		first = s.TimeNs
		for i := range s.Processes {
			first = min(first, s.Processes[i].SinceNs)
		}
	}
	return first
}

// ForgottenProcesses returns the number of ended processes that the snapshot lacks: it has only
// the newest.
func ForgottenProcesses(s *memory.Snapshot) int {
	n := int(s.ExitedProcesses)
	for i := range s.Processes {
		if s.Processes[i].Exit != nil {
			n--
		}
	}
	return n
}

// UnknownCommandLine replaces a command that could not be read before its process ended or called
// exec.
const UnknownCommandLine = "?"

// ProcessName is the command line without folders; "" if it is not known.
func ProcessName(p *memory.Process) string {
	return cmp.Or(ShortCommand(p.Command), Clean(p.Comm))
}

// ProcessState is "running", or how the process ended.
func ProcessState(p *memory.Process) string {
	switch {
	case p.Exit == nil:
		return "running"
	case p.Exit.Status == nil:
		return "ended"
	}
	status := syscall.WaitStatus(*p.Exit.Status)
	if status.Signaled() {
		if name := unix.SignalName(status.Signal()); name != "" {
			return name
		}
		return fmt.Sprintf("signal %d", status.Signal())
	}
	return fmt.Sprintf("exit %d", status.ExitStatus())
}

// HostMemory is the memory of a process on the host: "1.1 GiB (at most 1.2 GiB)"; "" if it is not known.
func HostMemory(h memory.HostMemory) string {
	if h.PeakBytes == 0 {
		return ""
	}
	return fmt.Sprintf("%s (at most %s)", Bytes(h.ResidentBytes), Bytes(h.PeakBytes))
}

// HostGrowth names the processes whose host memory grew to the end, of some processes or all.
func HostGrowth(list []memory.Process, pids []int, users Users) (texts []string) {
	for i := range list {
		if p := &list[i]; p.Host != nil && p.Host.GrowthBytes > 0 && (len(pids) == 0 || slices.Contains(pids, p.PID)) {
			texts = append(texts, fmt.Sprintf("Host memory of %s, not device memory, grew by %s to %s", users.PID(p.PID), Bytes(p.Host.GrowthBytes), Bytes(p.Host.ResidentBytes)))
		}
	}
	return texts
}

// StillReading is the note while memory from before the attach is still being read.
const StillReading = "the memory of processes that were already running is still being read: totals are incomplete, ask again"
