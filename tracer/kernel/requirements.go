package kernel

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/tracer/host"
)

// Feature is a required or optional feature of the host.
type Feature struct {
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail describes the feature or, if OK is false, how to fix it.
	Detail string `json:"detail"`
	// Untried is true if trying it needs more privileges.
	Untried bool `json:"untried,omitempty"`
	// Busy is true if it did not work in time on a host where more threads want to run than there are
	// processors, so that nothing follows.
	Busy bool `json:"busy,omitempty"`
	// Instead is the replacement for an optional feature that the host lacks, and its cost.
	Instead string `json:"instead,omitempty"`
}

// Requirements checks the requirements of tracing, as far as that is possible without tracing.
// supported is false if further checks are pointless.
func Requirements() (list []Feature, supported bool) {
	list = []Feature{{Name: "kernel", OK: true, Detail: kernelRelease()}, processor()}
	if !list[1].OK {
		return list, false
	}
	return append(list, Privileges(), typeInformation(), pidNamespace()), true
}

// instead has the replacement for each optional feature, and its cost.
var instead = map[string]string{
	featureUprobeMulti: "a perf event for each probe: ttmem ends two seconds after its report",
	featureDirectMap:   "memory is read with a helper: an allocation with its stack, and its free, take 5 µs more",
}

// OptionalFeatures tries the optional features.
func OptionalFeatures() (list []Feature) {
	k, err := Detect()
	if err != nil {
		return nil // the self-test has reported the error
	}
	for _, name := range Optional {
		f := Feature{Name: name, OK: true}
		if why, lacks := k.why[name]; lacks {
			f.Detail, f.Instead = why, instead[name]
		}
		list = append(list, f)
	}
	return list
}

// leastFiles is the least limit of open files: for maps, programs and links, and for the files that
// are read.
const leastFiles = 160

// leastMemory is the least memory limit of ttmem's cgroup. Half of it is for the kernel side's maps
// and unwind tables; of an attach that was measured, 157 to 193 MiB. With less, the kernel may kill ttmem before it can print an error.
const leastMemory = 224 << 20

// Check returns an error that names what is missing if this host or user cannot trace.
func Check() error {
	if f := processor(); !f.OK {
		return errors.New(f.Detail)
	}
	if err := checkPrivileges(); err != nil {
		return err
	}
	var files unix.Rlimit // raised by Go's runtime as far as allowed
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &files) == nil && files.Cur < leastFiles {
		return fmt.Errorf("%d open files are allowed, and tracing needs %d: `ulimit -n 1024` raises the limit", files.Cur, leastFiles)
	}
	cgroups, _ := os.ReadFile("/proc/self/cgroup")
	if limit := memoryLimit("/sys/fs/cgroup", string(cgroups)); limit < leastMemory {
		return fmt.Errorf("its cgroup allows %d MiB of memory, and tracing needs %d: raise memory.max (MemoryMax= of systemd, --memory of Docker)",
			limit>>20, leastMemory>>20)
	}
	if f := typeInformation(); !f.OK {
		return errors.New(f.Detail)
	}
	if f := pidNamespace(); !f.OK {
		return fmt.Errorf("the PID namespace is %s", f.Detail)
	}
	return nil
}

// memoryLimit is the least limit of the cgroups in a /proc/PID/cgroup and of those above them. It
// is MaxUint64 without a limit.
func memoryLimit(root, cgroups string) uint64 {
	least := uint64(math.MaxUint64)
	for line := range strings.Lines(cgroups) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) < 3 {
			continue
		}
		dir, file := root, "memory.max"
		switch parts[1] {
		case "": // version 2
		case "memory":
			dir, file = root+"/memory", "memory.limit_in_bytes"
		default:
			continue
		}
		for at := path.Join("/", parts[2]); ; at = path.Dir(at) {
			text, _ := os.ReadFile(dir + at + "/" + file)
			if limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil { // else "max"
				least = min(least, limit)
			}
			if at == "/" {
				break
			}
		}
	}
	return least
}

// processor: layouts are derived from x86-64 machine code, and the kernel side reads x86-64
// registers.
func processor() Feature {
	if runtime.GOARCH != "amd64" {
		return Feature{Name: "processor", Detail: runtime.GOARCH + ": ttmem traces on x86-64 only; it can show recordings here"}
	}
	return Feature{Name: "processor", OK: true, Detail: "x86-64"}
}

func typeInformation() Feature {
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return Feature{Name: "BTF", Detail: "no /sys/kernel/btf/vmlinux: a kernel with CONFIG_DEBUG_INFO_BTF is needed"}
	}
	return Feature{Name: "BTF", OK: true, Detail: ""}
}

// pidNamespace: the kernel reports process ids of the host; in another namespace they would
// not match /proc.
func pidNamespace() Feature {
	const initial = "pid:[4026531836]"
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err == nil && ns != initial {
		return Feature{Name: "PID namespace", Detail: "not the host's: run ttmem on the host, or its container with --pid=host"}
	}
	return Feature{Name: "PID namespace", OK: true, Detail: "the host's"}
}

// kernelRelease returns the name of the running kernel.
func kernelRelease() string { return "Linux " + host.KernelRelease() }

// NotPermitted reports whether privileges are missing. The verifier returns EACCES too, for
// programs that it refuses.
func NotPermitted(err error) bool {
	var refused *ebpf.VerifierError
	return !errors.As(err, &refused) && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES))
}

// ShortError shortens an error to one line, without the verifier's log.
func ShortError(err error) error {
	var refused *ebpf.VerifierError
	if errors.As(err, &refused) {
		err = refused.Cause
	}
	if line, _, more := strings.Cut(err.Error(), "\n"); more {
		return errors.New(line)
	}
	return err
}
