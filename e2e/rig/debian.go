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

// DebianKeyring has the keys of Debian's archive.
const DebianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// DebianMirror returns $MIRROR, or the mirror of Debian that the host's apt uses.
func DebianMirror(ctx context.Context) (string, error) {
	if mirror := os.Getenv("MIRROR"); mirror != "" {
		return mirror, nil
	}
	out, err := exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(REPO_URI) $(LABEL) $(ORIGIN)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("asking apt for its mirror: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[1] == "Debian" && f[2] == "Debian" { // security updates have another label
			return f[0], nil
		}
	}
	return "", errors.New("this machine's apt has no mirror of Debian: name one, MIRROR=URL")
}

// DebianPython returns the interpreter of a version of Python of a suite of Debian, which it downloads
// once, with its own C library: the suite may be newer than this machine.
func DebianPython(ctx context.Context, suite, version string) (Interpreter, error) {
	name := "python" + version
	dir, err := debianFiles(ctx, suite, name, func(dir string, apt func(args ...string) error) error {
		libffi := "libffi8"
		if suite == "bullseye" {
			libffi = "libffi7"
		}
		packages := []string{name + "-minimal", "lib" + name + "-minimal", "lib" + name + "-stdlib", "libc6", "libexpat1", "zlib1g", libffi, "libstdc++6", "libgcc-s1"}
		if err := unpack(ctx, dir, apt, packages...); err != nil {
			return err
		}
		// up to bookworm, the C library is not below /usr
		const start = `#!/bin/sh
root=$(dirname "$0")
loader=$(ls "$root"/lib/x86_64-linux-gnu/ld-*.so* "$root"/usr/lib/x86_64-linux-gnu/ld-*.so* 2>/dev/null | head -n 1)
exec "$loader" --library-path "$root/lib/x86_64-linux-gnu:$root/usr/lib/x86_64-linux-gnu" "$root/usr/bin/%s" "$@"
`
		return writeFile(dir+"/files/python3", fmt.Appendf(nil, start, name), 0o755)
	})
	if err != nil {
		return Interpreter{}, err
	}
	p := Interpreter{Name: version + " of Debian", Exe: filepath.Join(dir, "python3")}
	out, err := exec.CommandContext(ctx, p.Exe, "-c", "import platform; print(platform.python_version())").Output()
	p.Version = strings.TrimSpace(string(out))
	return p, err
}

// unpack downloads packages into a folder, and unpacks them below files there.
func unpack(ctx context.Context, dir string, apt func(args ...string) error, packages ...string) error {
	if err := apt(append([]string{"download"}, packages...)...); err != nil {
		return err
	}
	found, _ := filepath.Glob(dir + "/*.deb") // fails only on a bad pattern
	for _, deb := range found {
		if err := runIn(ctx, dir, "dpkg-deb", "-x", deb, "files"); err != nil {
			return err
		}
	}
	return nil
}

// debianFiles returns a folder with files of a package of a suite of Debian. download writes
// them below files of a folder, with an apt-get that has its own lists of packages.
func debianFiles(ctx context.Context, suite, name string, download func(dir string, apt func(args ...string) error) error) (string, error) {
	return downloaded(ctx, filepath.Join("debian", suite+"-"+name), "files", func(work string) error {
		apt, err := debianLists(ctx, work, "deb", suite)
		if err == nil {
			err = download(work, apt)
		}
		if err != nil {
			return fmt.Errorf("from Debian: %w", err)
		}
		return nil
	})
}

// debianLists returns an apt-get with lists of its own in a folder: of packages, kind "deb", or of their sources,
// "deb-src".
func debianLists(ctx context.Context, dir, kind, suite string) (apt func(args ...string) error, err error) {
	mirror, err := DebianMirror(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(DebianKeyring); err != nil {
		return nil, errors.New("no keyring of Debian: install debian-archive-keyring")
	}
	for _, folder := range []string{"lists/partial", "files"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return nil, err
		}
	}
	sources := filepath.Join(dir, "sources.list")
	if err := writeFile(sources, fmt.Appendf(nil, "%s [signed-by=%s] %s %s main\n", kind, DebianKeyring, mirror, suite), 0o644); err != nil {
		return nil, err
	}
	apt = func(args ...string) error {
		return runIn(ctx, dir, "apt-get", append([]string{
			"-o", "Dir::Etc::SourceList=" + sources, "-o", "Dir::Etc::SourceParts=-", "-o", "Dir::State::Lists=" + dir + "/lists",
			"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + dir, "-o", "APT::Sandbox::User=root",
		}, args...)...)
	}
	return apt, apt("update")
}

// runIn runs a command in a folder.
func runIn(ctx context.Context, dir, command string, args ...string) error {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", command, err, lastWords(string(out)))
	}
	return nil
}
