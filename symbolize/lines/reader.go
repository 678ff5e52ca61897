package lines

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
)

// A separate process reads the DWARF of each file. debug/dwarf trusts the file: a few bytes can
// make it allocate any amount of memory, which ends the process without a way to recover.

const (
	// readerName is the name, os.Args[0], of a process that reads DWARF.
	readerName = "ttmem-lines"
	// readerMemory bounds its allocations, in bytes. Mapped files do not count.
	readerMemory = 2 << 30
	// readerSeconds bounds its CPU time.
	readerSeconds = 120
	// maxAnswer bounds its answer for an address, in bytes.
	maxAnswer = 1 << 20
	// nobody is its user and group if ttmem is root.
	nobody = 65534
)

// reader is a process that reads the DWARF of a file. It starts at the first address. It reads
// numbers, the addresses, and writes a line of JSON for each.
type reader struct {
	file *os.File
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Reader
	err  error // why it stopped answering
}

var errMalformed = errors.New("it is malformed, or takes too much time or memory")

// at returns the calls at an address, innermost first; none if the debug information does
// not describe it, or cannot be read.
func (r *reader) at(vaddr uint64) (calls []symbolize.Function) {
	if r.cmd == nil && r.err == nil {
		r.err = r.start()
	}
	if r.err != nil {
		return nil
	}
	_ = json.NewEncoder(r.in).Encode(vaddr) // if the process has ended there is no answer
	line, err := r.out.ReadSlice('\n')
	if err != nil || json.Unmarshal(line, &calls) != nil {
		r.close()
		r.err = errMalformed
		return nil
	}
	return calls
}

func (r *reader) start() (err error) {
	c := exec.Command("/proc/self/exe")
	c.Args, c.Env, c.ExtraFiles = []string{readerName}, []string{}, []*os.File{r.file}
	// Ctrl-C is meant for the command alone, which may continue.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	if r.in, err = c.StdinPipe(); err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	r.out = bufio.NewReaderSize(out, maxAnswer)
	if err = c.Start(); err == nil {
		r.cmd = c
	}
	return err
}

func (r *reader) close() {
	if r.cmd != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
	r.cmd, r.err = nil, os.ErrClosed
}

// Any program that can start a reader can become one, including tests, so that no main has
// to call this.
func init() {
	if os.Args[0] == readerName {
		if err := answer(os.NewFile(3, "the file")); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// answer answers requests for a file until the input ends.
func answer(f *os.File) error {
	for resource, limit := range map[int]uint64{unix.RLIMIT_DATA: readerMemory, unix.RLIMIT_CPU: readerSeconds} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return err
		}
	}
	if err := dropCapabilities(); err != nil {
		return err
	}
	d, err := openDebugInfo(f)
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var vaddr uint64
		if in.Decode(&vaddr) != nil {
			return nil
		}
		if err := out.Encode(d.at(vaddr)); err != nil {
			return err
		}
	}
}

// dropCapabilities gives up the capabilities that a user with the right to trace has passed on.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&header)), uintptr(unsafe.Pointer(&none)), 0)
	if errno != 0 && errno != unix.ENOTSUP { // as in tests that use C: their user has none
		return errno
	}
	return nil
}
