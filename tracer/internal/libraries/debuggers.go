package libraries

import (
	"errors"
	"fmt"

	"ttmem/tracer/host"
)

// HoldForDebuggers leaves probes that do nothing in processes that are debugged. A debugger
// saves the code that its breakpoint replaces. If that was a probe, the debugger restores the
// probe's breakpoint instruction even after the end of tracing, and the process would be killed
// there. Once the debugger has detached, the kernel restores the code.
func (s *Set) HoldForDebuggers() {
	for _, pid := range s.Processes(nil) {
		by := host.DebuggerOf(pid)
		if by == 0 {
			continue
		}
		files, err := s.objs.Support.Uprobes.Hold(pid)
		keeper, failed := host.KeepWhileDebugged(pid, files)
		for _, f := range files {
			f.Close()
		}
		if err = errors.Join(err, failed); err != nil {
			s.warn(host.NoUser, fmt.Sprintf("process %d is being debugged by process %d, and may crash when the debugger removes breakpoints from ttmem's probes: %v", pid, by, err))
			continue
		}
		s.warn(host.NoUser, fmt.Sprintf("process %d is debugged by process %d, which may have saved ttmem's probes as code: "+
			"they do nothing now, and stay until it detaches (process %d, ttmem-keeper)", pid, by, keeper))
	}
}
