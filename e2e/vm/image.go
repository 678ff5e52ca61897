package main

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ttmem/e2e/rig"
)

// imageScript completes the guest's root.
//
//go:embed image.sh
var imageScript string

// imagePackages are what the guest needs besides Debian's minimal system. The libraries of
// Python come with gdb, which embeds it.
const imagePackages = "gdb,procps,libatomic1,libstdc++6,systemd,zlib1g"

// hostSuite is the guest's release of Debian if the host runs another system. It must be a
// recent one, as the host's Python has to run there.
const hostSuite = "trixie"

// rootImage returns the image of the guest's root file system, and builds it if needed.
func (v *vm) rootImage(ctx context.Context) (string, error) {
	base, err := basePaths(ctx, v.env.Python)
	if err != nil {
		return "", err
	}
	suite := suiteOfHost()
	key := sha256.Sum256(fmt.Append(nil, imageScript, imagePackages, suite, v.env.Version, base, v.cache))
	path := filepath.Join(v.dir, fmt.Sprintf("root-%s-%x.img", v.env.Version, key[:6]))
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if os.Geteuid() != 0 {
		return "", errors.New("building the guest's root needs root: use make vmtest")
	}
	start := time.Now()
	v.say("building the guest's root: Debian %s with ttnn %s", suite, v.env.Version)
	if err := v.warmUp(ctx); err != nil {
		return "", err
	}
	if err := v.buildImage(ctx, path, suite, base); err != nil {
		return "", fmt.Errorf("building the guest's root: %w", err)
	}
	v.say("built the guest's root in %.0f s", time.Since(start).Seconds())
	old, _ := filepath.Glob(filepath.Join(v.dir, "root-*.img")) // fails only on a bad pattern
	for _, p := range old {
		if p != path {
			os.Remove(p)
		}
	}
	return path, nil
}

func (v *vm) buildImage(ctx context.Context, path, suite string, base []string) error {
	mirror, err := v.archive.findMirror(ctx)
	if err != nil {
		return err
	}
	work := filepath.Join(v.dir, "root.build")
	if err := errors.Join(os.RemoveAll(work), os.MkdirAll(work, 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(work)
	script, root, image := filepath.Join(work, "image.sh"), filepath.Join(work, "root"), filepath.Join(work, "img")
	if err := os.WriteFile(script, []byte(imageScript), 0o755); err != nil {
		return err
	}
	copied := []string{
		filepath.Dir(filepath.Dir(filepath.Dir(v.env.Python))),
		filepath.Join(v.cache, "kernels", v.env.Version+"-"+string(rig.N150)),
		filepath.Join(v.cache, "boards"),
	}
	vars, err := v.env.Environ(rig.N150)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(v.dir, "root.log"))
	if err != nil {
		return err
	}
	defer log.Close()
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = append(vars, "ROOT_BASE="+relative(base), "ROOT_COPY="+relative(copied), "ROOT_PYTHON="+v.env.Python, "LC_ALL=C")
		cmd.Stdout, cmd.Stderr = log, log
		if err := runBound(cmd); err != nil {
			return fmt.Errorf("%s: %w (log: %s)", name, err, log.Name())
		}
		return nil
	}
	if err := run("mmdebstrap", "--variant=minbase", "--include="+imagePackages, "--format=directory",
		"--keyring="+keyring, `--aptopt=APT::Sandbox::User "root"`,
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--customize-hook="+script, suite, root,
		fmt.Sprintf("deb [signed-by=%s] %s %s main", keyring, mirror, suite)); err != nil {
		return err
	}
	size, err := diskUsage(root)
	if err != nil {
		return err
	}
	// A journal and checksums would only cost time: the image is read-only.
	if err := run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal,^metadata_csum", "-m", "0", "-d", root,
		image, fmt.Sprint((size+size/8+256<<20)/1024)); err != nil {
		return err
	}
	return os.Rename(image, path)
}

// basePaths are the needed files of the interpreter below a virtual environment: the
// program, its library, and Python's own modules.
func basePaths(ctx context.Context, python string) ([]string, error) {
	out, err := output(ctx, python, "-c", `
import os, re, sys, sysconfig
print(os.path.realpath(sys.executable))
print(os.path.realpath(sysconfig.get_path("platstdlib", vars={"platbase": sys.base_prefix})))
print(os.path.realpath(sysconfig.get_path("stdlib")))
for line in open("/proc/self/maps"):
    if "/libpython" in line:
        print(line.split()[-1])
`)
	if err != nil {
		return nil, fmt.Errorf("asking Python for its files: %w", err)
	}
	var paths []string
	seen := make(map[string]bool)
	for _, p := range strings.Fields(out) {
		if !seen[p] {
			seen[p] = true
			paths = append(paths, p)
		}
	}
	return paths, nil
}

// warmUp runs programs of the tests once, so that the cache that is copied into the image
// has their bytecode and device kernels.
func (v *vm) warmUp(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "ttmem-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, args := range [][]string{{"mix.py"}, {"stacks.py"}, {"failures.py"}, {"late.py", "10"}, {"hold.py", "3", "512"}} {
		args[0] = filepath.Join(v.module, "e2e", "programs", args[0])
		cmd := v.env.Command(ctx, rig.N150, args...)
		cmd.Dir = dir
		cmd.Env = append(cmd.Env, "TTMEM_MESH=1x1", "TTMEM_CHECKPOINTS="+filepath.Join(dir, "checkpoints"),
			"TTMEM_STACKS="+filepath.Join(dir, "stacks"))
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("running %s: %s", filepath.Base(args[0]), lastLine(string(out)))
		}
	}
	return nil
}

// suiteOfHost is the host's release of Debian, or hostSuite.
func suiteOfHost() string {
	text, _ := os.ReadFile("/etc/os-release")
	fields := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[name] = strings.Trim(value, `"`)
	}
	if fields["ID"] == "debian" && fields["VERSION_CODENAME"] != "" {
		return fields["VERSION_CODENAME"]
	}
	return hostSuite
}

// relative returns paths below the root, as words of a shell.
func relative(paths []string) string {
	words := make([]string, len(paths))
	for i, p := range paths {
		words[i] = strings.TrimPrefix(p, "/")
	}
	return strings.Join(words, " ")
}

// diskUsage is the size of the files below a directory, in whole blocks.
func diskUsage(dir string) (bytes int64, err error) {
	out, err := exec.Command("du", "-s", "-B1", dir).Output()
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(out), &bytes)
	return bytes, err
}
