package tracer

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// Feature is something that ttmem needs of the host.
type Feature struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail says what was found, or what to do where OK is false.
	Detail string `json:"detail"`
}

// Features tries out what ttmem needs of the kernel and the user.
func Features() []Feature {
	list := []Feature{kernelVersion(), privileges(), typeInformation()}
	try := func(name, need string, check func() error) {
		f := Feature{Name: name, OK: true}
		if err := check(); err != nil {
			f.OK, f.Detail = false, fmt.Sprintf("%v; %s", err, need)
		}
		list = append(list, f)
	}
	try("ring buffer", "Linux 5.8 or later is needed", func() error {
		return features.HaveMapType(ebpf.RingBuf)
	})
	try("task storage", "Linux 5.11 or later is needed", func() error {
		return features.HaveMapType(ebpf.TaskStorage)
	})
	try("uprobe_multi", "Linux 6.6 or later with CONFIG_UPROBES is needed", tryUprobeMulti)
	try("scheduler tracepoints", "a kernel with CONFIG_BPF_EVENTS is needed", tryTracepoint)
	try("mapping events", "a kernel with CONFIG_PERF_EVENTS is needed", func() error {
		w, err := watchMappings()
		if err == nil {
			w.Close()
		}
		return err
	})
	return append(list, pidNamespace())
}

func kernelVersion() Feature {
	var u unix.Utsname
	_ = unix.Uname(&u)
	return Feature{"kernel", true, "Linux " + unix.ByteSliceToString(u.Release[:])}
}

func privileges() Feature {
	if os.Geteuid() != 0 {
		return Feature{"privileges", false, "not root: run it with sudo"}
	}
	return Feature{"privileges", true, "root"}
}

func typeInformation() Feature {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return Feature{"BTF", false, "no /sys/kernel/btf/vmlinux: a kernel with CONFIG_DEBUG_INFO_BTF is needed"}
	}
	return Feature{"BTF", true, ""}
}

// pidNamespace: the kernel tells process ids as the host's; elsewhere they could
// not be matched with those of /proc.
func pidNamespace() Feature {
	const initial = "pid:[4026531836]"
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err == nil && ns != initial {
		return Feature{"PID namespace", false, "not the host's: run ttmem on the host, or its container with --pid=host"}
	}
	return Feature{"PID namespace", true, "the host's"}
}

func tryUprobeMulti() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return short(err)
	}
	defer prog.Close()
	exe, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return err
	}
	l, err := exe.UprobeMulti([]string{"runtime.main"}, prog, &link.UprobeMultiOptions{PID: uint32(os.Getpid())})
	if err != nil {
		return short(err)
	}
	return l.Close()
}

func tryTracepoint() error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: "sched_process_exit", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return short(err)
	}
	return prog.Close()
}

// short is an error without the verifier's log.
func short(err error) error {
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		err = refused.Cause
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return errors.New(line)
}
