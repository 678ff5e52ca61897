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
func cachedWheel(dir, version, tag string) (string, bool) {
	m, _ := filepath.Glob(filepath.Join(dir, "ttnn-"+version+"-"+tag+"-*.whl")) // fails only on a bad pattern
	if len(m) == 0 {
		return "", false
	}
	return m[0], true
}

// download fetches a wheel into dir, which it empties first.
func download(ctx context.Context, dir, version, tag string) (string, error) {
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
		"--python-version="+strings.TrimPrefix(tag, "cp"), "--dest="+dir, "ttnn=="+version)
	if err := runLogged(ctx, strings.TrimSuffix(dir, ".download")+".log", python, args...); err != nil {
		return "", fmt.Errorf("downloading ttnn %s: %w", version, err)
	}
	p, ok := cachedWheel(dir, version, tag)
	if !ok {
		return "", fmt.Errorf("downloading ttnn %s: pip left no wheel in %s", version, dir)
	}
	return p, nil
}

// anyPip returns an interpreter that has pip.
func anyPip(ctx context.Context) (string, error) {
	var all []string
	for _, v := range pythonVersions {
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
