// Package rig sets up the real ttnn from PyPI on its mock device, to run real programs on a
// machine without a card.
//
// ttnn's wheel ships a mock device with a real allocator, real programs, circular buffers
// and kernels, and no silicon. It needs three things that are not in the wheel: a
// description of the cluster, a device compiler and a CPython with the right version. The
// rig generates the first, writes a stand-in for the second, finds the third, and stores
// everything in a cache.
package rig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// DefaultVersion is the release of ttnn to set up by default.
const DefaultVersion = "0.81.1"

// Options say which ttnn to set up. The zero value is a good default.
type Options struct {
	// Version is the release of ttnn, DefaultVersion if empty.
	Version string
	// Python is "3.10" or "3.12", the versions with wheels. If empty: one with an existing
	// installation, or else 3.10 if this machine has it, or else 3.12.
	Python string
	// Progress receives one line for each step that takes over a second; nil: none.
	Progress io.Writer
}

// Env is one installation of ttnn that is ready to run on the mock device.
type Env struct {
	// Version is the release of ttnn.
	Version string
	// PythonVersion is "3.10" or "3.12".
	PythonVersion string
	// Python is the path of the virtual environment's interpreter.
	Python string
	// SitePackages is the directory with the ttnn package.
	SitePackages string
	// Library is the path of the ELF file with tt_metal: libtt_metal.so, or _ttnncpp.so in
	// releases without it.
	Library string

	chip *chip // nil: programs run on the mock device
}

// Setup returns an installation of ttnn, and installs it first if the cache has none. Many
// processes may call it at once: one installs, the others wait. It starts over after an
// interrupted installation.
func Setup(ctx context.Context, o Options) (*Env, error) {
	if o.Version == "" {
		o.Version = DefaultVersion
	}
	rel, err := parseRelease(o.Version)
	if err != nil {
		return nil, err
	}
	if err := rel.mockable(); err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	if o.Python != "" && !slices.Contains(PythonVersions, o.Python) {
		return nil, fmt.Errorf("ttnn has no wheel for Python %s: choose %s", o.Python, strings.Join(PythonVersions, " or "))
	}

	// An existing installation needs no search for an interpreter.
	wanted := PythonVersions
	if o.Python != "" {
		wanted = []string{o.Python}
	}
	for _, py := range wanted {
		if env, err := load(envDir(cache, o.Version, py)); err == nil {
			return env, env.writeCompiler()
		}
	}

	py, base, err := findPython(ctx, wanted)
	if err != nil {
		return nil, err
	}
	dir := envDir(cache, o.Version, py)
	say := progress(o.Progress)
	unlock, err := Lock(ctx, dir+".lock", func() {
		say("waiting for another set-up of ttnn %s for Python %s …", o.Version, py)
	})
	if err != nil {
		return nil, err
	}
	defer unlock()
	if env, err := load(dir); err == nil { // another process made it meanwhile
		return env, env.writeCompiler()
	}
	env, err := install(ctx, dir, base, py, o.Version, say)
	if err != nil {
		os.RemoveAll(dir) // the log is beside it
		return nil, err
	}
	return env, env.save(dir)
}

// marker is written last: a directory without it is an interrupted set-up.
const marker = "ready.json"

func envDir(cache, version, python string) string {
	return filepath.Join(cache, "ttnn", version+"-py"+python)
}

// load reads the installation in dir. It fails if there is none, or if its interpreter is
// gone.
func load(dir string) (*Env, error) {
	b, err := os.ReadFile(filepath.Join(dir, marker))
	if err != nil {
		return nil, err
	}
	env := new(Env)
	if err := json.Unmarshal(b, env); err != nil {
		return nil, err
	}
	for _, p := range []string{env.Python, env.Library} {
		if _, err := os.Stat(p); err != nil {
			return nil, err
		}
	}
	return env, nil
}

func (e *Env) save(dir string) error {
	b, err := json.MarshalIndent(e, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, marker), append(b, '\n'), 0o644)
}

// ours are prefixes of variables that the caller's environment must not pass on: those that
// decide which cluster is opened and how, as settings for a real card must not reach the mock,
// and those by which the library's log and pytest know a CI job, and print something else.
var ours = []string{
	"TT_METAL_", "TT_MESH_", "TT_VISIBLE_DEVICES=", "TT_SIM_", "WOLFPINE_", "NNG_SOCKET_", "LD_LIBRARY_PATH=", "PYTHONHOME=",
	"CI=", "GITHUB_ACTIONS=",
}

// Environ returns the whole environment for a process that runs ttnn on board: the
// caller's, without variables about tt-metal or a CI job, and with the rig's own.
func (e *Env) Environ(board Board) ([]string, error) {
	vars, err := e.vars(board)
	if err != nil {
		return nil, err
	}
	return append(slices.DeleteFunc(os.Environ(), isOurs), vars...), nil
}

func isOurs(kv string) bool {
	return slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(kv, prefix) })
}

// vars are the variables that the rig sets.
func (e *Env) vars(board Board) ([]string, error) {
	rel, err := parseRelease(e.Version)
	if err != nil {
		return nil, err
	}
	cache, err := CacheDir()
	if err != nil {
		return nil, err
	}
	name := e.Version + "-" + string(board)
	var vars []string
	if e.chip != nil {
		name = filepath.Base(e.chip.dir) + "-" + string(board)
		vars, err = e.chip.vars(board)
	} else {
		vars, err = mockVars(rel, board, cache)
	}
	if err != nil {
		return nil, err
	}
	// Kernels of one release or board are useless for another.
	kernels := filepath.Join(cache, "kernels", name)
	// Otherwise the library leaves a folder named generated in the working directory.
	logs := filepath.Join(cache, "logs", name)
	for _, dir := range []string{kernels, logs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
	}
	vars = append(vars, "TT_METAL_CACHE="+kernels, "TT_METAL_LOGS_PATH="+logs)
	// The library and Python's half of ttnn each have a log of their own.
	for _, level := range []string{"TT_LOGGER_LEVEL=error", "LOGURU_LEVEL=WARNING"} {
		if name, _, _ := strings.Cut(level, "="); os.Getenv(name) == "" {
			vars = append(vars, level)
		}
	}
	return vars, nil
}

// mockVars are the variables of programs on the mock device only.
func mockVars(rel release, board Board, cache string) ([]string, error) {
	desc, err := board.write(filepath.Join(cache, "boards"))
	if err != nil {
		return nil, err
	}
	vars := []string{"TT_METAL_MOCK_CLUSTER_DESC_PATH=" + desc}
	if rel.slowDispatch() {
		vars = append(vars, "TT_METAL_SLOW_DISPATCH_MODE=1")
	}
	return vars, nil
}

// Exports returns shell commands that enter the environment.
func (e *Env) Exports(board Board) ([]string, error) {
	vars, err := e.vars(board)
	if err != nil {
		return nil, err
	}
	lines := []string{"export PATH=" + shellQuote(filepath.Dir(e.Python)) + `:"$PATH"`}
	for _, kv := range os.Environ() {
		if isOurs(kv) {
			name, _, _ := strings.Cut(kv, "=")
			lines = append(lines, "unset "+name)
		}
	}
	for _, kv := range vars {
		name, value, _ := strings.Cut(kv, "=")
		lines = append(lines, "export "+name+"="+shellQuote(value))
	}
	return lines, nil
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// Command returns the command that runs the interpreter with args on board. It runs in the
// caller's directory, and writes ttnn's folder "generated" to the cache instead. An unknown
// board is reported when the command is started.
func (e *Env) Command(ctx context.Context, board Board, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.Python, args...)
	env, err := e.Environ(board)
	if err != nil {
		cmd.Err = err
	}
	cmd.Env = env
	return cmd
}

// CacheDir is $TTMEM_CACHE, or ttmem in the user's cache directory.
func CacheDir() (string, error) {
	if dir := os.Getenv("TTMEM_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", errors.New("no cache directory: set TTMEM_CACHE or HOME")
	}
	return filepath.Join(dir, "ttmem"), nil
}

// progress returns a printf to w that adds the end of the line.
func progress(w io.Writer) func(format string, args ...any) {
	if w == nil {
		w = io.Discard
	}
	return func(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }
}
