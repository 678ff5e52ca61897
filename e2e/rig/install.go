package rig

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// requirements are the imports of ttnn. The wheel requires more, such as pandas and
// seaborn, which only its own reports and developers' tools use: 200 MB that no program
// needs. numpy 2 breaks older releases.
var requirements = []string{"numpy<2", "loguru", "networkx", "graphviz", "pyyaml", "click"}

// install makes a virtual environment in dir and installs ttnn and the stand-in
// for its compiler there.
func install(ctx context.Context, dir, base, py, version string, say func(string, ...any)) (*Env, error) {
	if err := os.RemoveAll(dir); err != nil { // left by an interrupted set-up
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	log := dir + ".log"
	venv := filepath.Join(dir, "venv")
	env := &Env{
		Version:       version,
		PythonVersion: py,
		Python:        filepath.Join(venv, "bin", "python"),
		SitePackages:  filepath.Join(venv, "lib", "python"+py, "site-packages"),
	}
	start := time.Now()
	say("installing ttnn %s for Python %s (about 100 MB, once) …", version, py)
	if err := runLogged(ctx, log, base, "-m", "venv", venv); err != nil {
		return nil, fmt.Errorf("creating a virtual environment: %w", err)
	}
	what := append([]string{"--no-deps", "ttnn==" + version}, requirements...)
	if err := retried(ctx, say, "installing ttnn "+version, func() error {
		return runLogged(ctx, log, env.Python, pip("install", what...)...)
	}); err != nil {
		return nil, err
	}
	lib, err := findLibrary(env.SitePackages)
	if err != nil {
		return nil, fmt.Errorf("installing ttnn %s: %w", version, err)
	}
	env.Library = lib
	if err := env.writeCompiler(); err != nil {
		return nil, err
	}
	if err := env.tryImport(ctx); err != nil {
		return nil, err
	}
	say("installed ttnn %s for Python %s in %.0f s", version, py, time.Since(start).Seconds())
	return env, nil
}

// tryImport fails now, and not in each program, if the machine lacks a library that ttnn is
// linked to.
func (e *Env) tryImport(ctx context.Context) error {
	cmd := e.Command(ctx, N150, "-c", "import ttnn")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("importing ttnn %s: %s", e.Version, cmp.Or(lastWords(string(out)), err.Error()))
	}
	return nil
}

// pauses are those before further tries of a download that failed: networks and package indexes fail
// now and then.
var pauses = []time.Duration{5 * time.Second, 20 * time.Second}

const tryingAgain = "trying again"

// retried downloads something, a few times if that fails. Its error names what it was.
func retried(ctx context.Context, say func(string, ...any), what string, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		if err == nil || ctx.Err() != nil {
			return err
		}
		err = fmt.Errorf("%s: %w", what, err)
		if try == len(pauses) {
			return err
		}
		say("%v; %s in %v (%d of %d)", err, tryingAgain, pauses[try], try+2, len(pauses)+1)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pauses[try]):
		}
	}
}

// pip returns the arguments with which an interpreter runs pip.
func pip(verb string, args ...string) []string {
	return append([]string{"-m", "pip", verb, "--no-input", "--disable-pip-version-check",
		"--progress-bar=off", "--only-binary=:all:"}, args...)
}

// runLogged runs a command and appends its output to a log. The error is the last line of
// that output. The command dies with this process, which holds the lock.
func runLogged(ctx context.Context, log, name string, args ...string) error {
	f, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	start, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(kv string) bool {
		return strings.HasPrefix(kv, "PYTHONHOME=") || strings.HasPrefix(kv, "PYTHONPATH=")
	})
	cmd.Stdout, cmd.Stderr = f, f
	// The kernel sends the signal when the thread that started the command ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b, _ := os.ReadFile(log)
	words := lastWords(string(b[min(int(start), len(b)):]))
	return fmt.Errorf("%s (log: %s)", cmp.Or(words, err.Error()), log)
}

// lastWords returns the last meaningful line of pip's output: the last one
// that it marked as an error, or else the last one that is not a hint.
func lastWords(out string) string {
	last := ""
	for line := range strings.Lines(out) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "ERROR: "):
			last = line
		case line == "" || strings.HasPrefix(line, "WARNING:") || strings.HasPrefix(line, "[notice]"):
		case !strings.HasPrefix(last, "ERROR: "):
			last = line
		}
	}
	return strings.TrimPrefix(last, "ERROR: ")
}
