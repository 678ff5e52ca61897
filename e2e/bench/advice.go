package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"ttmem/e2e/rig"
)

// decodedRuns is how many programs decode.py runs for each token. It allocates and frees in most of them.
const decodedRuns = 38

// bytesForARun is the goal of what a recording grows by for each run of a cached program.
const bytesForARun = 4

// advice measures recordings of real programs with a million runs, and the time to the advice about them.
func (b *bench) advice() error {
	for _, p := range []struct {
		name string
		n    int
	}{{"cached.py", b.adviceRuns}, {"decode.py", b.adviceRuns / decodedRuns}} {
		path := filepath.Join(b.dir, "advice.ttmem")
		progress("recording %s %d", p.name, p.n)
		program := b.env.Command(context.Background(), rig.N150, filepath.Join(b.module, "e2e", "programs", p.name), strconv.Itoa(p.n))
		cmd := exec.Command(b.ttmem, append([]string{"run", "-o", path, "--force", "--", program.Path}, program.Args[1:]...)...)
		cmd.Env, cmd.Dir = program.Env, b.dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", p.name, err, bytes.TrimSpace(out))
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		b.printf("%s with %d runs of programs\n", p.name, b.adviceRuns)
		size := float64(info.Size()) / float64(b.adviceRuns)
		if p.name == "cached.py" {
			b.atMost("  bytes of the recording, for each run", size, "B", bytesForARun)
		} else {
			b.figure("  bytes of the recording, for each run and its buffers", size, "B")
		}
		if err := b.answer([]string{"advise", path}); err != nil {
			return err
		}
	}
	return nil
}
