package tracetest

import (
	"fmt"
	"os"
	"os/exec"
)

// Build makes the ttmem under test at path: TTMEM_BINARY, or else built from this tree, with
// the Makefile's flags: else `make dist` would compile all again.
func Build(path string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, "ttmem/cmd/ttmem")
	if ready := os.Getenv("TTMEM_BINARY"); ready != "" {
		cmd = exec.Command("cp", ready, path)
	}
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building ttmem: %w\n%s", err, out)
	}
	return nil
}
