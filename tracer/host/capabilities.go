package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A CapabilitySet has bit N for capability N.
type CapabilitySet uint64

// Capabilities returns a set.
func Capabilities(list ...int) (s CapabilitySet) {
	for _, c := range list {
		s |= 1 << c
	}
	return s
}

// Has reports whether the set has a capability.
func (s CapabilitySet) Has(capability int) bool { return s&(1<<capability) != 0 }

// PermittedCapabilities returns those that this thread may use.
func PermittedCapabilities() (CapabilitySet, error) {
	_, data, err := capget()
	return CapabilitySet(data[0].Permitted) | CapabilitySet(data[1].Permitted)<<32, err
}

// EffectiveCapabilities returns those that this thread uses; none if the kernel does not say.
func EffectiveCapabilities() CapabilitySet {
	_, data, _ := capget()
	return CapabilitySet(data[0].Effective) | CapabilitySet(data[1].Effective)<<32
}

// capget returns the capabilities of this thread as capget(2) and capset(2) have them.
func capget() (header unix.CapUserHeader, data [2]unix.CapUserData, err error) {
	header.Version = unix.LINUX_CAPABILITY_VERSION_3
	err = unix.Capget(&header, &data[0])
	return header, data, err
}

// TryCapabilities calls try in a thread that can use only these of its capabilities. Afterwards the
// thread is as before, or KeepCapabilities would fail in it.
func TryCapabilities(only CapabilitySet, try func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	header, before, err := capget()
	if err != nil {
		return
	}
	less := before
	for i := range less {
		less[i].Effective &= uint32(only >> (32 * i))
	}
	if unix.Capset(&header, &less[0]) == nil {
		try()
		_ = unix.Capset(&header, &before[0]) // all of it is permitted
	}
}

// OnlyOwnerExecutes reports whether root needs CAP_DAC_OVERRIDE to execute this program again.
var OnlyOwnerExecutes = sync.OnceValue(func() (only bool) {
	TryCapabilities(0, func() {
		only = errors.Is(unix.Faccessat(unix.AT_FDCWD, "/proc/self/exe", unix.X_OK, unix.AT_EACCESS), unix.EACCES)
	})
	return only
})

// newChild prepares this program as a child that has files from descriptor 3 on. args[0] is the name under
// which it runs.
func newChild(files []*os.File, args ...string) *exec.Cmd {
	return &exec.Cmd{
		Path: "/proc/self/exe", Args: args, Env: []string{"GOMAXPROCS=1"}, Dir: "/", ExtraFiles: files,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}, // a terminal's signals are for the parent
	}
}

// startChild calls start, which executes this program, in a thread that can only see other users'
// processes: the child gets no other capabilities. KeepCapabilities must not be called meanwhile.
func startChild(start func() error) error {
	only := Capabilities(unix.CAP_SYS_PTRACE)
	if OnlyOwnerExecutes() {
		only |= Capabilities(unix.CAP_DAC_OVERRIDE)
	}
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocks it: the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// but the main one does not end, and would stay as it is then
			defer runtime.UnlockOSThread()
			result <- startChild(start) // in another one, as this one waits
			return
		}
		header, data, err := capget()
		for i := range data {
			set := uint32(only >> (32 * i))
			data[i].Permitted &= set
			data[i].Effective = data[i].Permitted
			data[i].Inheritable &= set // by which an ordinary user passes them on
		}
		if err == nil {
			err = unix.Capset(&header, &data[0])
		}
		if err == nil { // or root's programs get all of the bounding set
			err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		}
		if err == nil {
			err = start()
		}
		result <- err
	}()
	return <-result
}

// KeepCapabilities gives up all other capabilities for ever, in all threads and in all programs
// that this process executes. A thread that waits for a file system or for a lock of another
// process would stop all threads: call it before there can be one.
func KeepCapabilities(keep CapabilitySet) error {
	has, err := PermittedCapabilities()
	if err != nil {
		return fmt.Errorf("capget: %w", err)
	}
	// Without CAP_SETPCAP the bounding set stays. No_new_privs has the same effect.
	for c := 0; has.Has(unix.CAP_SETPCAP); c++ {
		bound, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, uintptr(c), 0, 0, 0)
		if err != nil {
			break // the kernel has no more
		}
		if bound == 0 || (keep & has).Has(c) {
			continue
		}
		if err := inAllThreads(unix.SYS_PRCTL, unix.PR_CAPBSET_DROP, uintptr(c)); err != nil {
			return fmt.Errorf("PR_CAPBSET_DROP: %w", err)
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i].Permitted = uint32((keep & has) >> (32 * i))
		data[i].Effective = data[i].Permitted
	}
	if err := inAllThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&data))); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	if err := inAllThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1); err != nil {
		return fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	return nil
}

// inAllThreads makes a system call in each thread. Go's runtime ends the process if it fails in some.
func inAllThreads(call, a, b uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall(call, a, b, 0)
	switch {
	case errno == 0:
		return nil
	case errno == unix.ENOTSUP:
		return errors.New("a program with cgo cannot do that in all threads: build it with CGO_ENABLED=0")
	}
	return errno
}
