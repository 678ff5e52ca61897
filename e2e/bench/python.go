package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"ttmem/e2e/rig"
)

// The goals of the live buffers of a large recording in Python.
const (
	pythonLimit  = 2   // seconds from opening it to their data frame
	pythonMemory = 300 // MB of the Python process
)

// readBuffers opens a recording and makes data frames of its live buffers: of all columns, or of the named ones. It
// prints the time and the processors' time without those of imports, and the most memory of the process and of the child that reads the file.
const readBuffers = `import json, os, sys, time
import pandas, ttmem
columns = sys.argv[3:] or None
begun, imported = time.monotonic(), time.process_time()
run = ttmem.open(sys.argv[1], sys.argv[2])
buffers = run.buffers(columns=columns)
seconds = time.monotonic() - begun
def most(pid):
    [line] = [line for line in open(f"/proc/{pid}/status") if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
child = run._children.idle[0].process.pid
ticks = sum(map(int, open(f"/proc/{child}/stat").read().rsplit(")")[-1].split()[11:13]))
processors = time.process_time() - imported + ticks / os.sysconf("SC_CLK_TCK")
print(json.dumps({"rows": len(buffers), "seconds": seconds, "processors": processors, "python": most("self"), "child": most(child)}))
`

// pythonPackage measures how fast the Python package gives the live buffers of a recording.
func (b *bench) pythonPackage() error {
	path := filepath.Join(b.dir, "python.ttmem")
	if err := newSynthetic(b.scaleLive, b.scaleLive+100_000).record(path); err != nil {
		return err
	}
	defer os.Remove(path)
	python, err := rig.PythonWith(context.Background(), "3.10", os.Stderr, rig.Notebook(rig.Pandas["3.10"])...)
	if err != nil {
		return err
	}
	for _, columns := range [][]string{nil, {"name", "region", "allocated_bytes"}} {
		progress("ttmem.open")
		cmd := exec.Command(python, append([]string{"-c", readBuffers, path, b.ttmem}, columns...)...)
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
		if columns == nil {
			b.printf("%d live buffers\n", got.Rows)
		}
		name := "  a data frame of them"
		if columns != nil {
			name = "  of " + strings.Join(columns, ", ")
		}
		b.atMost(name, got.Seconds, "s", pythonLimit)
		b.figure("    of processors", got.Processors, "s")
		b.atMost("    resident at most in Python", got.Python/mb, "MB", pythonMemory)
		b.figure("    and in the child", got.Child/mb, "MB")
	}
	return nil
}
