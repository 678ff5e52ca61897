package rig

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

// Tool returns the folder of the programs of a package of PyPI, which it installs first if the
// cache has none. Many processes may call it at once.
func Tool(ctx context.Context, name, version string, to io.Writer) (bin string, err error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "tools", name+"-"+version)
	bin, ready := filepath.Join(dir, "bin"), filepath.Join(dir, marker)
	python := filepath.Join(bin, "python")
	say := progress(to)
	unlock, err := Lock(ctx, dir+".lock", func() { say("waiting for another set-up of %s %s …", name, version) })
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(ready); err == nil {
		if _, err := os.Stat(python); err == nil { // not gone with another interpreter
			return bin, nil
		}
	}
	_, base, err := findPython(ctx, pythonVersions)
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(dir); err != nil { // left by an interrupted set-up
		return "", err
	}
	start := time.Now()
	say("installing %s %s (once) …", name, version)
	if err := runLogged(ctx, dir+".log", base, "-m", "venv", dir); err != nil {
		return "", fmt.Errorf("creating a virtual environment: %w", err)
	}
	if err := runLogged(ctx, dir+".log", python, pip("install", name+"=="+version)...); err != nil {
		return "", fmt.Errorf("installing %s %s: %w", name, version, err)
	}
	say("installed %s %s in %.0f s", name, version, time.Since(start).Seconds())
	return bin, writeFile(ready, []byte("{}\n"), 0o644)
}
