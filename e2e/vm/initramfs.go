package main

import (
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// writeInitramfs writes the initial file system: busybox, the script that mounts the root,
// and the modules for that.
func writeInitramfs(ctx context.Context, work, modules, to string) error {
	root := filepath.Join(work, "initramfs")
	defer os.RemoveAll(root)
	for _, dir := range []string{"bin", "dev", "modules"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	busybox, err := staticBusybox()
	if err != nil {
		return err
	}
	if err := copyFile(busybox, filepath.Join(root, "bin", "busybox")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, "init"), []byte(initScript), 0o755); err != nil {
		return err
	}
	files := []string{".", "bin", "bin/busybox", "dev", "init", "modules"}
	list, err := os.ReadDir(modules)
	if err != nil {
		return err
	}
	for _, f := range list {
		name := filepath.Join("modules", f.Name())
		files = append(files, name)
		if err := copyFile(filepath.Join(modules, f.Name()), filepath.Join(root, name)); err != nil {
			return err
		}
	}
	cpio := exec.CommandContext(ctx, "cpio", "--quiet", "-o", "-H", "newc", "-R", "0:0", "-F", to)
	cpio.Dir, cpio.Stdin = root, strings.NewReader(strings.Join(files, "\n")+"\n")
	return runBound(cpio)
}

// staticBusybox returns a statically linked busybox.
func staticBusybox() (string, error) {
	path, err := exec.LookPath("busybox")
	if err != nil {
		return "", errors.New("busybox is not installed: run make vmtools")
	}
	f, err := elf.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if libraries, _ := f.ImportedLibraries(); len(libraries) > 0 {
		return "", errors.New("busybox needs libraries: install busybox-static")
	}
	return path, nil
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}
