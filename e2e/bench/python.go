package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"ttmem/e2e/rig"
)

// The goals of the live buffers of a large recording in Python.
const (
	pythonLimit  = 2   // seconds from opening it to their data frame
	pythonMemory = 300 // MB of the Python process
)

// readBuffers opens a recording and evaluates an expression that makes something of its live buffers. It prints the time and the
// processors' time without those of imports, and the most memory of the process and of the child that reads the file.
const readBuffers = `import importlib, json, os, sys, time
import ttmem
path, command, library, expression = sys.argv[1:]
importlib.import_module(library)
begun, imported = time.monotonic(), time.process_time()
run = ttmem.open(path, command)
made = eval(expression)
seconds = time.monotonic() - begun
def most(pid):
    [line] = [line for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
child = run._children.idle[0].process.pid
ticks = sum(map(int, open(f"/proc/{child}/stat").read().rsplit(")")[-1].split()[11:13]))
processors = time.process_time() - imported + ticks / os.sysconf("SC_CLK_TCK")
print(json.dumps({"rows": len(made), "seconds": seconds, "processors": processors, "python": most("self"), "child": most(child)}))
`

// pythonReads are the ways to read the buffers: into a table of Arrow where that is installed, else into a data frame. The first one
// prints their number.
var pythonReads = []struct {
	name, python        string
	packages            func(pandas string) []string
	library, expression string
	anyMemory           bool // no goal: pandas 3 alone takes a third of it beside Arrow
}{
	{"a data frame of them", "3.10", rig.Notebook, "pandas", "run.buffers()", false},
	{"of name, region, allocated_bytes", "3.10", rig.Notebook, "pandas", "run.buffers(columns=['name', 'region', 'allocated_bytes'])", false},
	{"a table of Arrow", "3.12", rig.Arrow, "pyarrow", "run.at().arrow()", false},
	{"a data frame of pandas 3, where Arrow is installed", "3.12", rig.Arrow, "pandas", "run.buffers()", true},
}

// pythonPackage measures how fast the Python package gives the live buffers of a recording.
func (b *bench) pythonPackage() error {
	path := filepath.Join(b.dir, "python.ttmem")
	if err := newSynthetic(b.scaleLive, b.scaleLive+100_000).record(path); err != nil {
		return err
	}
	defer os.Remove(path)
	for i, read := range pythonReads {
		python, err := rig.PythonWith(context.Background(), read.python, os.Stderr, read.packages(rig.Pandas[read.python])...)
		if err != nil {
			return err
		}
		progress("ttmem.open")
		cmd := exec.Command(python, "-c", readBuffers, path, b.ttmem, read.library, read.expression)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(b.module, "python/ttmem"), "PYTHONDONTWRITEBYTECODE=1")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		progress("")
		if err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(errs.Bytes()))
		}
		var got struct {
			Rows                               int
			Seconds, Processors, Python, Child float64
		}
		if err := json.Unmarshal(out, &got); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if i == 0 {
			b.printf("%d live buffers\n", got.Rows)
		}
		b.atMost("  "+read.name, got.Seconds, "s", pythonLimit)
		b.figure("    of processors", got.Processors, "s")
		if resident := "    resident at most in Python"; read.anyMemory {
			b.figure(resident, got.Python/mb, "MB")
		} else {
			b.atMost(resident, got.Python/mb, "MB", pythonMemory)
		}
		b.figure("    and in the child", got.Child/mb, "MB")
	}
	return nil
}
