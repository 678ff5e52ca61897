package host

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"

	"ttmem/symbolize"
)

// waitingName is the name under which ttmem runs itself as a process that waits to become
// the command: the kernel side must know its id before the command's first instruction.
const waitingName = "ttmem-waiting"

// Command is a command that has been started but is not running yet.
type Command struct {
	cmd       *exec.Cmd
	startPipe *os.File
}

// Streams are the standard streams of a command. The zero value stands for ttmem's own.
type Streams struct{ In, Out, Err *os.File }

// StartCommand starts a command and stops it before its first instruction, until Go is
// called.
func StartCommand(args []string, streams Streams) (*Command, error) {
	path, err := exec.LookPath(args[0])
	if err != nil {
		return nil, err
	}
	if isText(path) {
		return nil, fmt.Errorf("starting %s: %w", args[0], unix.ENOEXEC)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	cmd := exec.Command("/proc/self/exe")
	cmd.Args = append([]string{waitingName, strconv.Itoa(int(read.Fd())), strconv.FormatUint(ignoredAtStart(), 16), path}, args...)
	cmd.Stdin = cmp.Or(streams.In, os.Stdin)
	cmd.Stdout, cmd.Stderr = cmp.Or(streams.Out, os.Stdout), cmp.Or(streams.Err, os.Stderr)
	// Inherited under its own number: any other may be one that the command is to inherit.
	_, err = unix.FcntlInt(read.Fd(), unix.F_SETFD, 0)
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		write.Close()
		return nil, fmt.Errorf("starting %s: %w", args[0], err)
	}
	return &Command{cmd, write}, nil
}

// isText reports whether the kernel will refuse a command because it is a text without #!.
// A shell would run it itself. With other formats registered (binfmt_misc) this cannot be
// known.
func isText(path string) bool {
	if formats, _ := filepath.Glob("/proc/sys/fs/binfmt_misc/*"); len(formats) > 2 {
		return false
	}
	b := firstBytes(path)
	return b != nil && !bytes.HasPrefix(b, []byte("#!")) && !bytes.ContainsRune(b, 0)
}

// PID is the id of the command's process.
func (c *Command) PID() int { return c.cmd.Process.Pid }

// Go lets the command run.
func (c *Command) Go() error {
	_, err := c.startPipe.Write([]byte{1})
	return errors.Join(err, c.startPipe.Close())
}

// Cancel ends a command before Go.
func (c *Command) Cancel() {
	c.startPipe.Close()
	c.cmd.Wait()
}

// Signal forwards a signal.
func (c *Command) Signal(s os.Signal) { _ = c.cmd.Process.Signal(s) }

// Wait waits for the command's end and returns its exit status in the form of a shell: 128
// plus the signal's number if a signal ended it.
func (c *Command) Wait() int {
	err := c.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 125
	}
	status := c.cmd.ProcessState.Sys().(interface {
		Signaled() bool
		Signal() unix.Signal
		ExitStatus() int
	})
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// waits reports whether this is the process that StartCommand made.
func waits() bool { return len(os.Args) >= 5 && os.Args[0] == waitingName }

func init() {
	if waits() {
		runtime.LockOSThread() // its first thread executes the command: see bpf.ProcessNewLeader
	}
}

// BecomeCommand must be the first call in main. In the process that StartCommand made, it
// waits and then becomes the command. In every other process it returns.
func BecomeCommand() {
	if !waits() {
		return
	}
	start, _ := strconv.Atoi(os.Args[1])
	ignored, _ := strconv.ParseUint(os.Args[2], 16, 64)
	path, args := os.Args[3], os.Args[4:]
	unix.CloseOnExec(start)
	var b [1]byte
	if n, err := unix.Read(start, b[:]); n != 1 || err != nil {
		os.Exit(125) // ttmem has cancelled it
	}
	ignoreSignals(ignored)
	err := unix.Exec(path, args, os.Environ())
	fmt.Fprintf(os.Stderr, "ttmem: %s: %v\n", path, err)
	os.Exit(126)
}

// LikelyLibraries are the tt-metal libraries that a command will probably map: those that the programs that it names
// need, those of their Python environments, and of the folders that variables name. Attaching before they are mapped avoids a
// race; others are discovered when they are mapped.
func LikelyLibraries(command []string) (found []string) {
	seen := make(map[string]bool)
	add := func(root string, below ...string) {
		libs, _ := filepath.Glob(filepath.Join(append([]string{root}, append(below, "build", "lib", "*.so")...)...))
		for _, lib := range libs {
			if filepath.IsAbs(root) && strings.Contains(filepath.Base(lib), "tt") && !seen[lib] {
				seen[lib] = true
				found = append(found, lib)
			}
		}
	}
	var roots []string
	for _, path := range programsIn(command) {
		found = append(found, neededLibraries(path, NamedLikeLibrary)...)
		roots = append(roots, filepath.Dir(filepath.Dir(path)))
		if real, err := filepath.EvalSymlinks(path); err == nil {
			roots = append(roots, filepath.Dir(filepath.Dir(real)))
		}
	}
	for _, root := range append(roots, os.Getenv("VIRTUAL_ENV")) {
		add(root, "lib", "python3*", "site-packages", "ttnn")
	}
	for _, root := range filepath.SplitList(os.Getenv("PYTHONPATH")) {
		add(root, "ttnn")
	}
	add(os.Getenv("TT_METAL_HOME")) // a tree that was built
	return found
}

// OpenPython opens the CPython that a command will probably run, a program or the library of one; nil if none is found.
func OpenPython(command []string) *os.File {
	for _, path := range programsIn(command) {
		real, err := filepath.EvalSymlinks(path)
		if err != nil || !strings.HasPrefix(filepath.Base(real), "python") || !bytes.HasPrefix(firstBytes(real), []byte("\x7fELF")) {
			continue
		}
		isPython := func(path string) bool { return strings.HasPrefix(filepath.Base(path), "libpython") }
		for _, path := range append(neededLibraries(real, isPython), real) {
			if file, err := Open(path); err == nil {
				return file
			}
		}
	}
	return nil
}

// maxWords bounds the words of a command that may name a program.
const maxWords = 256

// programsIn are the programs that a command names, in its order: the first word, those that a shell, env or timeout will
// start, and that of the first line of a script.
func programsIn(command []string) (paths []string) {
	var words []string
	for _, arg := range command {
		words = append(words, arg)
		if parts := strings.FieldsFunc(arg, endsWord); len(parts) > 1 {
			words = append(words, parts...)
		}
	}
	for i := 0; i < min(len(words), maxWords); i++ {
		path, err := exec.LookPath(words[i])
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil || slices.Contains(paths, path) {
			continue
		}
		paths = append(paths, path)
		if line, ok := strings.CutPrefix(firstLine(path), "#!"); ok {
			words = append(words, strings.Fields(line)...)
		}
	}
	return paths
}

// endsWord reports whether a word of a shell's command ends at a character.
func endsWord(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(`;&|()"'`, r) }

// firstLine is the first line of a file, as far as it is in the first bytes.
func firstLine(path string) string {
	line, _, _ := strings.Cut(string(firstBytes(path)), "\n")
	return line
}

// firstBytes are as many as the kernel reads of a program to see its format.
func firstBytes(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil // it may be executable but not readable
	}
	defer f.Close()
	var b [256]byte
	n, _ := f.Read(b[:])
	return b[:n]
}

// Beside are the files that a process may map with a tt-metal library: those installed with it, the extensions of Python,
// and the one with which ttmem's package names moments. On a busy host placing its probe takes half a second, in which a
// program would name its first ones.
func Beside(library string) []string {
	dir := filepath.Dir(library)
	found, _ := filepath.Glob(filepath.Join(dir, "*.so*"))
	extensions, _ := filepath.Glob(filepath.Join(dir, "..", "..", "*.so"))
	found = append(found, extensions...)
	for _, packages := range append(filepath.SplitList(os.Getenv("PYTHONPATH")), filepath.Join(dir, "..", "..", "..")) {
		marks, _ := filepath.Glob(filepath.Join(packages, "ttmem", "*.so"))
		if filepath.IsAbs(packages) {
			found = append(found, marks...)
		}
	}
	return found
}

// neededLibraries are those that a program is linked with, of some names.
func neededLibraries(program string, named func(string) bool) (found []string) {
	e, err := symbolize.Open(program)
	if err != nil {
		return nil
	}
	defer e.Close()
	names, folders := e.Needed()
	folders = strings.ReplaceAll(strings.ReplaceAll(folders, "${ORIGIN}", "$ORIGIN"), "$ORIGIN", filepath.Dir(program))
	for _, name := range names {
		if !named(name) {
			continue
		}
		for _, folder := range filepath.SplitList(folders + ":" + os.Getenv("LD_LIBRARY_PATH")) {
			path := filepath.Join(folder, name)
			if _, err := os.Stat(path); err == nil && filepath.IsAbs(path) {
				found = append(found, path)
				break
			}
		}
	}
	return found
}

// NamedLikeLibrary reports whether a file is named like a tt-metal library.
func NamedLikeLibrary(path string) bool {
	name := filepath.Base(path)
	return strings.Contains(name, "tt_metal") || strings.Contains(name, "ttnn")
}
