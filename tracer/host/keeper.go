package host

import (
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// keeperName is the name under which a program runs to keep its parent's files open.
const keeperName = "ttmem-keeper"

// KeepWhileDebugged starts a child that keeps files open until no debugger is attached to a
// process. It survives its parent.
func KeepWhileDebugged(pid int, files []*os.File) (keeper int, err error) {
	child := newChild(files, keeperName, strconv.Itoa(pid))
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it survives the terminal, too
	if err := startChild(child.Start); err != nil {
		return 0, err
	}
	return child.Process.Pid, nil
}

func init() {
	if len(os.Args) != 2 || os.Args[0] != keeperName {
		return
	}
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(keeperName+"\x00"))), 0, 0, 0)
	pid, _ := strconv.Atoi(os.Args[1])
	for DebuggerOf(pid) != 0 {
		time.Sleep(100 * time.Millisecond)
	}
	os.Exit(0)
}
