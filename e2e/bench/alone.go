package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ttmem/tracer/host"
)

// waitAlone waits until no other tracer has a probe in the program. A probe lies in a code
// file, so all processes hit it, even if its tracer traces another one. Its cost would
// count as the program's own time.
func (b *bench) waitAlone(p *program) error {
	at, err := codeAddress(p.pid(), b.env.Library, b.alloc.FileOffset)
	if err != nil {
		return err
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p.pid()))
	if err != nil {
		return err
	}
	defer mem.Close()
	for until := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		var code [1]byte
		if _, err := mem.ReadAt(code[:], int64(at)); err != nil {
			return err
		}
		switch {
		case code[0] != 0xcc: // int3
			return nil
		case time.Now().After(until):
			return errors.New("another tracer has probes in the library: end it first")
		}
		progress("waiting for another tracer of the library to end")
	}
}

// codeAddress returns where a process has mapped the code at an offset of a file.
func codeAddress(pid int, file string, offset uint64) (uint64, error) {
	file, err := filepath.EvalSymlinks(file)
	if err != nil {
		return 0, err
	}
	maps, err := new(host.Proc).CodeMappings(pid)
	if err != nil {
		return 0, err
	}
	for _, m := range maps {
		if m.Path == file && m.Offset <= offset && offset < m.Offset+m.End-m.Start {
			return m.Start + offset - m.Offset, nil
		}
	}
	return 0, fmt.Errorf("process %d does not map the code of %s", pid, file)
}
