package rig

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
)

// PythonVersions are the versions with wheels of ttnn, the preferred one first.
var PythonVersions = []string{"3.10", "3.12"}

// findPython returns the first of versions for which this machine has a usable
// interpreter, and the interpreter.
func findPython(ctx context.Context, versions []string) (version, path string, err error) {
	for _, v := range versions {
		for _, p := range pythonCandidates(v) {
			if usable(ctx, p, v) {
				return v, p, nil
			}
		}
		if err := ctx.Err(); err != nil {
			return "", "", err
		}
	}
	choose := ""
	for _, v := range PythonVersions {
		if !slices.Contains(versions, v) {
			choose = ", or choose Python " + v
		}
	}
	return "", "", fmt.Errorf("no usable Python %s (venv and pip are needed): %s%s",
		strings.Join(versions, " or "), howToInstall(versions), choose)
}

// ubuntuWith is the release of Ubuntu that packages a version of Python. Debian packages
// none of them: 12 has 3.11, 13 has 3.13.
var ubuntuWith = map[string]string{"3.10": "22.04", "3.12": "24.04"}

// howToInstall are commands that install one of the versions.
func howToInstall(versions []string) string {
	var apt []string
	for _, v := range versions {
		apt = append(apt, fmt.Sprintf("`sudo apt install python%s-venv` on Ubuntu %s", v, ubuntuWith[v]))
	}
	return fmt.Sprintf("%s; `sudo apt install pipx && pipx run uv python install %s` on Debian and other releases of Ubuntu",
		strings.Join(apt, ", "), versions[len(versions)-1])
}

// pythonCandidates are the places where an interpreter of a version may be: on PATH, and in
// the folders of pyenv and uv. Under sudo the caller's own home counts too.
func pythonCandidates(version string) []string {
	var found []string
	exe := "python" + version
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if p := filepath.Join(dir, exe); dir != "" && executable(p) {
			found = append(found, p)
		}
	}
	var pyenv, uv []string
	if root := os.Getenv("PYENV_ROOT"); root != "" {
		pyenv = append(pyenv, root)
	}
	for _, home := range homes() {
		pyenv = append(pyenv, filepath.Join(home, ".pyenv"))
		uv = append(uv, filepath.Join(home, ".local/share/uv/python"))
	}
	glob := func(pattern string) {
		m, _ := filepath.Glob(pattern) // fails only on a bad pattern
		slices.Reverse(m)
		found = append(found, m...)
	}
	for _, root := range pyenv {
		glob(filepath.Join(root, "versions", version+".*", "bin", exe))
	}
	for _, root := range uv {
		glob(filepath.Join(root, "cpython-"+version+".*", "bin", exe))
	}
	return found
}

// homes are the caller's home and, under sudo, that of the user who called sudo.
func homes() []string {
	var dirs []string
	if h, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, h)
	}
	if name := os.Getenv("SUDO_USER"); name != "" {
		if u, err := user.Lookup(name); err == nil && !slices.Contains(dirs, u.HomeDir) {
			dirs = append(dirs, u.HomeDir)
		}
	}
	return dirs
}

func executable(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

// usable runs the interpreter, because a file is no proof: pyenv's shims fail when their
// version is not selected, and Debian ships Python without venv.
func usable(ctx context.Context, path, version string) bool {
	out, err := exec.CommandContext(ctx, path, "-c",
		"import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])").Output()
	return err == nil && strings.TrimSpace(string(out)) == version
}
