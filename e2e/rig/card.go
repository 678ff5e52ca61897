package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A Machine is the caller's own installation of ttnn, on the chips of this machine.
type Machine struct {
	Python, Version, Library string
	// Arch is the architecture of its chips, and Chips their number.
	Arch  string
	Chips int
	// SlowDispatch is true if the caller's environment asks for it.
	SlowDispatch bool
}

// describe prints what FindMachine needs to know. The library's own log goes to standard output, too.
const describe = `
import importlib.metadata, json, os, ttnn
print("MACHINE", json.dumps({
    "Version": importlib.metadata.version("ttnn"), "Chips": ttnn.GetNumAvailableDevices(), "Arch": ttnn.get_arch_name(),
    "Library": [l.split()[-1] for l in open("/proc/self/maps") if os.path.basename(l.split()[-1]) == "libtt_metal.so"][0],
}))`

// FindMachine asks a Python with ttnn what this machine has. It opens no device.
func FindMachine(ctx context.Context, python string) (*Machine, error) {
	cmd := exec.CommandContext(ctx, python, "-c", describe)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, exec.ErrNotFound) {
		return nil, fmt.Errorf("no %s here: give the Python that has ttnn, make card PYTHON=path", python)
	}
	if err != nil {
		return nil, fmt.Errorf("%s cannot use ttnn here: %s", python, lastWords(said.String()))
	}
	_, text, ok := strings.Cut(string(out), "MACHINE ")
	if !ok {
		return nil, fmt.Errorf("%s does not say which ttnn it has", python)
	}
	m := &Machine{Python: python}
	if err := json.NewDecoder(strings.NewReader(text)).Decode(m); err != nil {
		return nil, err
	}
	if m.Chips == 0 {
		return nil, errors.New("ttnn finds no chip on this machine")
	}
	m.SlowDispatch = os.Getenv("TT_METAL_SLOW_DISPATCH_MODE") != ""
	return m, nil
}

// Command returns a command that runs a Python program on the first chips, with the caller's environment. It
// writes its checkpoints and the library's logs below dir.
func (m *Machine) Command(ctx context.Context, dir string, chips int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, m.Python, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), fmt.Sprintf("TTMEM_MESH=1x%d", chips), "TTMEM_CHECKPOINTS="+filepath.Join(dir, "checkpoints.jsonl"),
		"TT_METAL_LOGS_PATH="+dir, "PYTHONUNBUFFERED=1")
	return cmd
}
