package page

import (
	"cmp"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/aggregate"
)

// FirstNs is where times are counted from: when the first process began, as all commands
// count them; of what goes on, or where no process is known, or not all are, when tracing
// began. It is 0 where that is not known.
func FirstNs(s *aggregate.Snapshot, live bool) uint64 {
	first := s.BeganNs
	if len(s.Processes) > 0 && (first == 0 || !live && ForgottenProcesses(s) == 0) {
		first = s.TimeNs
		for i := range s.Processes {
			first = min(first, s.Processes[i].SinceNs)
		}
	}
	return first
}

// ForgottenProcesses is how many processes ended that the snapshot does not have: it
// keeps the newest.
func ForgottenProcesses(s *aggregate.Snapshot) int {
	n := int(s.ExitedProcesses)
	for i := range s.Processes {
		if s.Processes[i].Exit != nil {
			n--
		}
	}
	return n
}

// UnknownCommandLine stands for the command of a process that ended before it could be
// read, or went on as another program.
const UnknownCommandLine = "?"

// ProcessName is what a person calls the process; "" where that is not known.
func ProcessName(p *aggregate.Process) string {
	return cmp.Or(ShortCommand(p.Command), Clean(p.Comm))
}

// ProcessState is how the process is or ended.
func ProcessState(p *aggregate.Process) string {
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
