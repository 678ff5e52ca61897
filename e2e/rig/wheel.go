package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Wheel returns the path of the wheel of any release of ttnn, for static tests that need no
// installation. Tag is the CPython of the wheel, "cp310" or "cp312". It prints nothing, and
// takes as long as a download of 100 MB; the cache keeps the wheel, and it may be deleted.
func Wheel(ctx context.Context, version, tag string) (string, error) {
	if _, err := parseRelease(version); err != nil {
		return "", err
	}
	if !slices.ContainsFunc(pythonVersions, func(v string) bool { return tag == pythonTag(v) }) {
		return "", fmt.Errorf("ttnn has no wheel for %q: choose cp310 or cp312", tag)
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "wheels")
	if p, ok := cachedWheel(dir, version, tag); ok {
		return p, nil
	}
	name := filepath.Join(dir, version+"-"+tag)
	unlock, err := Lock(ctx, name+".lock", func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	if p, ok := cachedWheel(dir, version, tag); ok { // another process made it meanwhile
		return p, nil
	}
	tmp := name + ".download"
	defer os.RemoveAll(tmp)
	p, err := download(ctx, tmp, version, tag)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(p))
	return to, os.Rename(p, to)
}

// pythonTag is the version of CPython in the name of a wheel: cp310 for 3.10.
func pythonTag(version string) string { return "cp" + strings.ReplaceAll(version, ".", "") }

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
