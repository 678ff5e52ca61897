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

// DebianSource returns a folder with files of a source package of a suite of Debian, which it
// downloads once. files are patterns of tar.
func DebianSource(ctx context.Context, suite, name string, files ...string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "debian", suite+"-"+name)
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
	if err := downloadSource(ctx, work, suite, name, files); err != nil {
		return "", fmt.Errorf("downloading the source of %s: %w", name, err)
	}
	return dir, os.Rename(filepath.Join(work, "files"), dir)
}

// downloadSource downloads a source package into dir/files, with lists of its own.
func downloadSource(ctx context.Context, dir, suite, name string, files []string) error {
	mirror, err := DebianMirror(ctx)
	if err != nil {
		return err
	}
	if _, err := os.Stat(DebianKeyring); err != nil {
		return errors.New("no keyring of Debian: install debian-archive-keyring")
	}
	if err := os.RemoveAll(dir); err != nil { // left by an interrupted download
		return err
	}
	for _, folder := range []string{"lists/partial", "files"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			return err
		}
	}
	sources := filepath.Join(dir, "sources.list")
	if err := writeFile(sources, fmt.Appendf(nil, "deb-src [signed-by=%s] %s %s main\n", DebianKeyring, mirror, suite), 0o644); err != nil {
		return err
	}
	run := func(command string, args ...string) {
		if err != nil {
			return
		}
		cmd := exec.CommandContext(ctx, command, args...)
		cmd.Dir = dir
		if out, failed := cmd.CombinedOutput(); failed != nil {
			err = fmt.Errorf("%s: %w: %s", command, failed, lastWords(string(out)))
		}
	}
	apt := []string{
		"-o", "Dir::Etc::SourceList=" + sources, "-o", "Dir::Etc::SourceParts=-", "-o", "Dir::State::Lists=" + dir + "/lists",
		"-o", "Dir::State::status=/dev/null", "-o", "Dir::Cache=" + dir, "-o", "APT::Sandbox::User=root",
	}
	run("apt-get", append(apt, "update")...)
	run("apt-get", append(apt, "source", "--download-only", "--tar-only", name)...)
	found, _ := filepath.Glob(dir + "/*.orig.tar.*") // fails only on a bad pattern
	run("tar", slices.Concat([]string{"-C", "files", "--strip-components=1", "--wildcards", "-xf"}, found, files)...)
	return err
}
