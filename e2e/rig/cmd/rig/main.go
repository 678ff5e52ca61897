// Command rig runs Python programs with the real ttnn on its mock device or a simulated chip.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"ttmem/e2e/rig"
)

const self = "go run ./e2e/rig/cmd/rig"

const usage = `Runs Python programs with the real ttnn from PyPI on its mock device, so that no
Tenstorrent card is needed. The first use of a release installs it into
$TTMEM_CACHE (by default ttmem in the user's cache directory).

Usage: rig [flags] [-- ARGUMENTS OF PYTHON…]

Examples:
  rig                                     install, and say how to use it
  rig -- program.py                       run program.py on a mock N150
  rig -board t3000 -- program.py --size 4 the same on eight chips
  rig -version 0.76.0 -- -c 'import ttnn' with another release
  rig -chip -- program.py                 on a simulated chip, which executes kernels
  eval "$(rig -env)"                      enter the environment in this shell,
                                          then: python program.py

Flags:
`

func main() {
	status, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rig:", err)
	}
	os.Exit(status)
}

// run returns the exit status.
func run() (int, error) {
	var (
		version = flag.String("version", rig.DefaultVersion, "the `release` of ttnn")
		python  = flag.String("python", "", "the `version` of Python, 3.10 or 3.12 (default: what is there)")
		board   = flag.String("board", string(rig.N150), "the `name` of the mock cluster: "+boardNames())
		all     = flag.Bool("all", false, "set up all that make test needs, and print what and how long it takes")
		older   = flag.Bool("older", false, "the same for make releases, the tests of older releases of ttnn")
		chip    = flag.Bool("chip", false, "a simulated chip that executes kernels, of board n150 or p150, in place of the mock device")
		env     = flag.Bool("env", false, "print the lines with which a shell enters the environment")
	)
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()

	b, err := rig.ParseBoard(*board)
	if err != nil {
		return 2, err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	if *all || *older {
		if err := rig.SetUpAll(ctx, *older, os.Stderr); err != nil {
			return 1, err
		}
		return 0, nil
	}
	e, err := rig.Setup(ctx, rig.Options{Version: *version, Python: *python, Progress: os.Stderr})
	if err == nil && *chip {
		e, err = e.Chip(ctx, os.Stderr)
	}
	stop()
	if err != nil {
		return 1, err
	}
	switch {
	case *env:
		lines, err := e.Exports(b)
		if err != nil {
			return 1, err
		}
		fmt.Println(strings.Join(lines, "\n"))
		return 0, nil
	case flag.NArg() == 0:
		rows, cols := b.MeshShape()
		flags := fmt.Sprintf("-version %s -python %s -board %s", e.Version, e.PythonVersion, b)
		kind := "mock"
		if *chip {
			kind = "simulated"
			flags += " -chip"
		}
		fmt.Printf("ttnn %s is ready on a %s %s, a mesh of %d×%d.\n", e.Version, kind, b, rows, cols)
		fmt.Printf("Python:         %s\n", e.Python)
		fmt.Printf("Run a program:  %s %s -- program.py\n", self, flags)
		fmt.Printf("Or in a shell:  eval \"$(%s %s -env)\"; python program.py\n", self, flags)
		return 0, nil
	}
	return become(e, b, flag.Args())
}

// become replaces this process with the interpreter: its signals, exit status
// and process id are then those of the program.
func become(e *rig.Env, b rig.Board, args []string) (int, error) {
	env, err := e.Environ(b)
	if err != nil {
		return 1, err
	}
	err = syscall.Exec(e.Python, append([]string{e.Python}, args...), env)
	return 1, fmt.Errorf("running %s: %w", e.Python, err)
}

func boardNames() string {
	var names []string
	for _, b := range rig.Boards() {
		names = append(names, string(b))
	}
	return strings.Join(names, ", ")
}
