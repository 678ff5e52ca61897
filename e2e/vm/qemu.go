package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// accelerator selects what runs the guest's instructions.
type accelerator struct {
	name string
	args []string
}

var (
	// 5-level page tables take longer to emulate.
	tcg = accelerator{"tcg", []string{"-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"}}
	kvm = accelerator{"kvm", []string{"-accel", "kvm", "-cpu", "host"}}
)

// machine is a guest.
type machine struct {
	kernel, initramfs string
	accelerator       accelerator
	drives            []string // arguments of -drive
	arguments         string   // for the kernel's command line
	memory, cpus      int
	log               io.Writer // gets the console
	marked            func(words []string)
	limit             func(words []string) time.Duration // until the next mark
}

// mark begins a line of the console for the host.
const mark = "ttmem-vm: "

// panicked matches a kernel panic.
var panicked = regexp.MustCompile(`Kernel panic - not syncing: (.*)`)

// flagsOf matches the processor's flags in a report of a kernel fault.
var flagsOf = regexp.MustCompile(`EFLAGS: ([0-9a-f]{8})\b`)

// impossible reports whether a line has flags above the 21st, which no processor has. QEMU
// 7.2 produces them when it emulates a cmpxchg16b without a lock, and the kernel panics if
// it is interrupted there.
func impossible(line string) bool {
	found := flagsOf.FindStringSubmatch(line)
	if found == nil {
		return false
	}
	flags, err := strconv.ParseUint(found[1], 16, 32)
	return err == nil && flags>>22 != 0
}

// errEmulator is a panic that is the emulator's fault, or is taken to be it: that of an emulated kernel before its first process.
var errEmulator = errors.New("QEMU's emulation went wrong")

// errEarly is an end that the guest did not announce.
var errEarly = errors.New("the machine ended early")

// run runs a guest to its end. The error describes another end.
func (m *machine) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// On a busy host, QEMU's timer is too late for the kernel's test of it, which then panics.
	const kernelArguments = "console=ttyS0 quiet panic=-1 oops=panic no_timer_check "
	args := append([]string{"-m", fmt.Sprint(m.memory), "-smp", fmt.Sprint(m.cpus),
		"-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio",
		"-kernel", m.kernel, "-initrd", m.initramfs,
		"-append", strings.TrimSpace(kernelArguments + m.arguments)}, m.accelerator.args...)
	for _, d := range m.drives {
		args = append(args, "-drive", d)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	console, writer := io.Pipe()
	cmd.Stdout = writer
	var last []string // the words of the last mark
	var said string
	broken := false // by a fault of the emulator
	done := make(chan struct{})
	go func() {
		defer close(done)
		hung := time.AfterFunc(m.limit(nil), func() { cancel(context.DeadlineExceeded) })
		defer hung.Stop()
		for r := bufio.NewReader(console); ; {
			line, err := r.ReadString('\n')
			io.WriteString(m.log, line)
			if found := panicked.FindStringSubmatch(line); found != nil && said == "" {
				said = "kernel panic: " + strings.TrimSpace(found[1])
			}
			broken = broken || impossible(line)
			if _, text, found := strings.Cut(line, mark); found {
				last = strings.Fields(text)
				hung.Reset(m.limit(last))
				m.marked(last)
			}
			if err != nil {
				return
			}
		}
	}()
	err := runBound(cmd)
	writer.Close()
	<-done
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return m.hung(last, said)
	case ctx.Err() != nil:
		return ctx.Err()
	case said != "" && (broken || len(last) == 0 && m.accelerator.name == tcg.name): // nothing of ttmem has run then
		return fmt.Errorf("%w: %s, %s", errEmulator, said, while(last))
	case said != "":
		return fmt.Errorf("%s, %s", said, while(last))
	case err != nil:
		return fmt.Errorf("QEMU: %s", cmp.Or(lastLine(stderr.String()), err.Error()))
	case len(last) > 1 && last[0] == "failed":
		return fmt.Errorf("the guest failed: %s", strings.Join(last[1:], " "))
	case len(last) == 0:
		return fmt.Errorf("%w: the kernel did not start its first process", errEarly)
	}
	return nil
}

// hung describes where a guest stopped responding.
func (m *machine) hung(last []string, said string) error {
	if said != "" {
		return fmt.Errorf("%s, %s", said, while(last))
	}
	return fmt.Errorf("no answer for %v %s", m.limit(last), while(last))
}

// while describes what a guest was doing after a mark.
func while(last []string) string {
	switch {
	case len(last) == 0:
		return "while the kernel booted: no process was started"
	case last[0] == "started":
		return "while the root was mounted: no check was started"
	case last[0] == "begin" && len(last) > 1:
		return "in the check " + last[1]
	case last[0] == "end" && len(last) > 1:
		return "after the check " + last[1]
	}
	return "at its end"
}

// kvmWorks reports whether a kernel boots with KVM. The device is no proof: in a nested
// machine a guest may hang.
func kvmWorks(ctx context.Context, m machine) bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return false
	}
	f.Close()
	started := false
	m.accelerator, m.drives, m.arguments = kvm, nil, m.arguments+" ttmem.probe"
	m.marked = func(words []string) { started = started || words[0] == "started" }
	m.limit = func([]string) time.Duration { return 10 * time.Second }
	return m.run(ctx) == nil && started
}
