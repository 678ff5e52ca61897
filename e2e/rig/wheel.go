package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// cachedWheel finds a wheel in a folder: the cache may have some that were put there by hand.
func cachedWheel(dir, name, version, tag string) (string, bool) {
	m, _ := filepath.Glob(filepath.Join(dir, name+"-"+version+"-"+tag+"-*.whl")) // fails only on a bad pattern
	if len(m) == 0 {
		return "", false
	}
	return m[0], true
}

// download fetches a wheel into dir, which it empties first.
func download(ctx context.Context, dir, name, version, tag string) (string, error) {
	if err := os.RemoveAll(dir); err != nil { // left by an interrupted download
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	python, err := anyPip(ctx)
	if err != nil {
		return "", err
	}
	// The interpreter that downloads the wheel may have another version.
	args := pip("download", "--no-deps", "--implementation=cp", "--abi="+tag,
		"--python-version="+strings.TrimPrefix(tag, "cp"), "--dest="+dir, name+"=="+version)
	if err := retried(ctx, progress(os.Stderr), "downloading "+name+" "+version, func() error {
		return runLogged(ctx, strings.TrimSuffix(dir, ".download")+".log", python, args...)
	}); err != nil {
		return "", err
	}
	p, ok := cachedWheel(dir, name, version, tag)
	if !ok {
		return "", fmt.Errorf("downloading %s %s: pip left no wheel in %s", name, version, dir)
	}
	return p, nil
}

// Wheel returns a folder with the modules of a wheel of PyPI for a version of Python, such as "3.14",
// which need not have pip. It downloads the wheel first if the cache has none.
func Wheel(ctx context.Context, name, version, py string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	tag := "cp" + strings.ReplaceAll(py, ".", "")
	dir := filepath.Join(cache, "packages", name+"-"+version+"-"+tag)
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
	wheel, err := download(ctx, work, name, version, tag)
	if err != nil {
		return "", err
	}
	python, err := anyPip(ctx)
	if err != nil {
		return "", err
	}
	if err := runLogged(ctx, dir+".log", python, "-m", "zipfile", "-e", wheel, filepath.Join(work, "files")); err != nil {
		return "", err
	}
	return dir, os.Rename(filepath.Join(work, "files"), dir)
}

// anyPip returns an interpreter that has pip.
func anyPip(ctx context.Context) (string, error) {
	var all []string
	for _, v := range PythonVersions {
		all = append(all, pythonCandidates(v)...)
	}
	if p, err := exec.LookPath("python3"); err == nil {
		all = append(all, p)
	}
	for _, p := range all {
		if exec.CommandContext(ctx, p, "-c", "import pip").Run() == nil {
			return p, nil
		}
	}
	return "", errors.New(`no Python with pip: install it with "apt install python3-pip"`)
}
