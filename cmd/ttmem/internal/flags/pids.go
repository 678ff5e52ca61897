package flags

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/host"
)

// completePIDs lists the processes that use tt-metal and that this user may see, with their
// commands.
func completePIDs(_ *cobra.Command, _ []string, begun string) (list []string, _ cobra.ShellCompDirective) {
	pids, _ := host.PIDs()
	var proc host.Proc
	for _, pid := range pids {
		text := strconv.Itoa(pid)
		if !strings.HasPrefix(text, begun) {
			continue
		}
		maps, _ := proc.FileMappings(pid)
		if slices.ContainsFunc(maps, func(m host.Mapping) bool { return host.NamedLikeLibrary(m.Path) }) {
			list = append(list, cobra.CompletionWithDesc(text, describe(pid)))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// describe returns the command of a process. For other users' processes it returns only the name:
// reading a command line could block root on memory that the user controls.
func describe(pid int) string {
	var command []byte
	if host.RealUser(pid) == os.Getuid() {
		command, _ = os.ReadFile(fmt.Sprintf("%s/cmdline", host.ProcDir(pid)))
	}
	if len(command) == 0 {
		return page.Clean(host.ThreadName(pid, pid))
	}
	return page.ShortCommand(strings.ReplaceAll(string(command), "\x00", " "))
}
