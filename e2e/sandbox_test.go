package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// filtering is the first argument of this program if it is to execute a command that may make
// certain system calls only. The second one is their numbers, the others are the command.
const filtering = "ttmem-filtering"

func init() {
	if len(os.Args) < 4 || os.Args[1] != filtering {
		return
	}
	runtime.LockOSThread() // the filter is of this thread, and exec ends the others
	err := filterCalls(strings.Split(os.Args[2], ","))
	if err == nil {
		err = unix.Exec(os.Args[3], os.Args[3:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// filterCalls makes all other system calls fail with EPERM, as the unit does.
func filterCalls(allowed []string) error {
	const number, arch = 0, 4 // offsets in struct seccomp_data
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	result := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
	equals := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: k}
	}
	refuse := result(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	program := []unix.SockFilter{load(arch), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: unix.AUDIT_ARCH_X86_64}, refuse, load(number)}
	for _, text := range allowed {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return err
		}
		program = append(program, equals(uint32(n), 1), result(unix.SECCOMP_RET_ALLOW))
	}
	program = append(program, refuse)
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&filter)), 0, 0)
}

// withUnitsCalls limits a command of unprivileged to the system calls of the unit's list. Without
// systemd's own lists and the kernel's headers it does nothing, and returns false.
func withUnitsCalls(t *testing.T, cmd *exec.Cmd) (filtered bool) {
	t.Helper()
	unit, err := os.ReadFile(unitFile)
	qt.Assert(t, qt.IsNil(err))
	header, err := os.ReadFile("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
	if _, missing := exec.LookPath("systemd-analyze"); err != nil || missing != nil {
		t.Log("without the unit's list of system calls: needs systemd-analyze and the kernel's headers")
		return false
	}
	allowed := map[string]bool{}
	expand(t, "@default", func(name string) { allowed[name] = true })
	lists := regexp.MustCompile(`(?m)^SystemCallFilter=(~?)(.*)$`).FindAllStringSubmatch(string(unit), -1)
	qt.Assert(t, qt.IsTrue(len(lists) > 0))
	for _, list := range lists {
		for name := range strings.FieldsSeq(list[2]) {
			expand(t, name, func(name string) { allowed[name] = list[1] == "" })
		}
	}
	var numbers []string
	for _, call := range regexp.MustCompile(`(?m)^#define __NR_(\w+) (\d+)$`).FindAllStringSubmatch(string(header), -1) {
		if allowed[call[1]] {
			numbers = append(numbers, call[2])
		}
	}
	qt.Assert(t, qt.IsTrue(len(numbers) > 200))
	at := slices.Index(cmd.Args, ttmem)
	cmd.Args = slices.Insert(cmd.Args, at, os.Args[0], filtering, strings.Join(numbers, ","))
	return true
}

// expand calls take with the names of a group of system calls.
func expand(t *testing.T, name string, take func(string)) {
	t.Helper()
	if !strings.HasPrefix(name, "@") {
		take(name)
		return
	}
	out, err := exec.Command("systemd-analyze", "syscall-filter", "--no-pager", name).Output()
	qt.Assert(t, qt.IsNil(err))
	for line := range strings.Lines(string(out)) {
		if line = strings.TrimSpace(line); line != "" && line != name && !strings.HasPrefix(line, "#") {
			expand(t, line, take)
		}
	}
}
