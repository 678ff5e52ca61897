package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/diagnosis"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/doctor"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

func newDoctor() *cobra.Command {
	c := &cobra.Command{
		Use:   "doctor [LIBRARY|PID]…",
		Short: "Check whether tracing works on this host",
		Long: `Checks whether tracing works on this host: loads the eBPF programs, traces a small program of its
own, and compares the recorded events and call stacks with the program's calls. Then it lists the chips
on PCIe with their board, driver and firmware, and checks the tt-metal libraries that processes map, and
whether each process runs on a card, the mock device or a simulator.

With LIBRARY, it checks only that. With PID, it checks that process: which files of it contain tt-metal, what
is missing there and what that costs, whether Python frames and owners can be read, and who may trace it.

"slower" marks a missing kernel feature that ttmem replaces. On a busy host, ttmem traces its program for
up to 20 s; "BUSY" marks parts that are still missing then. The exit status is 0 if tracing works.`,
		Example: `  ttmem doctor
  ttmem doctor venv/lib/python3.10/site-packages/ttnn/build/lib/libtt_metal.so
  ttmem doctor 4242
  ttmem doctor --json | jq '.libraries[].missing'`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"so"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(c *cobra.Command, args []string) error { return diagnose(args, flags.Format(c)) },
	}
	flags.Takes(c, flags.JSON)
	return c
}

func diagnose(args []string, format term.Format) error {
	checked := term.While("ttmem: tracing a small program")
	features := doctor.Features()
	checked()
	p := diagnosis.New(features, len(args) == 0, os.Geteuid() == 0 || kernel.MayTrace())
	failed, users := false, page.NewSupplement(page.Clock{})
	for _, file := range args {
		if pid, err := strconv.ParseUint(file, 10, 31); err == nil {
			one, libraries, err := doctor.InspectProcess(int(pid))
			if err != nil {
				term.Warn(err.Error())
				failed = true
				continue
			}
			one.Refused = refused(p, one.UID)
			users.Add([]memory.Process{{PID: one.PID, About: memory.About{UID: one.UID, Command: one.Name}}})
			p.Processes, p.Libraries = append(p.Processes, one), append(p.Libraries, libraries...)
			continue
		}
		one, err := doctor.InspectFile(file)
		if err != nil {
			term.Warn(err.Error() + "; give the path of a libtt_metal.so, or a process id")
			failed = true
			continue
		}
		p.Libraries = append(p.Libraries, one)
	}
	if p.OfHost {
		p.Chips, p.Driver = host.Chips(), host.DriverVersion()
		mapped, more, err := doctor.InspectMapped()
		if err != nil {
			return err
		}
		p.Uninspected = more
		p.Libraries = append(p.Libraries, mapped...)
	}
	if err := output.Print(p, format, users, "diagnosis"); err != nil {
		return err
	}
	if failed || !p.Works() {
		return term.ExitStatus(1)
	}
	return nil
}

// refused returns why this user may not trace a process of a user; "" if they may.
func refused(p *diagnosis.Page, user int) string {
	switch {
	case p.Root && p.HostWorks():
		return ""
	case p.Root:
		return p.Verdict()
	case user == os.Getuid():
		return "" // the service of the host, or sudo, traces for them
	}
	return fmt.Sprintf("only root and user %d may trace it", user)
}
