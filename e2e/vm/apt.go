package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"ttmem/e2e/rig"
)

// suites are the suites of Debian that are searched for kernels. A mirror need not have all
// of them.
var suites = []string{
	"bookworm", "bookworm-updates", "bookworm-backports",
	"trixie", "trixie-updates", "trixie-backports",
	"forky", "forky-backports", "sid", "experimental",
}

// archive is a mirror of Debian, with its own apt configuration: the host's is not touched.
type archive struct {
	dir    string
	mirror string // empty: the one that the host's apt uses
}

const keyring = rig.DebianKeyring

func (a *archive) config() string { return filepath.Join(a.dir, "apt.conf") }
func (a *archive) index() string  { return filepath.Join(a.dir, "kernels.json") }

// kernels returns the kernels in the index of the last refresh, and the age of the index.
// There is none before the first refresh.
func (a *archive) kernels() (list []kernel, age time.Duration, err error) {
	text, err := os.ReadFile(a.index())
	if err != nil {
		return nil, 0, err
	}
	info, err := os.Stat(a.index())
	if err != nil {
		return nil, 0, err
	}
	return list, time.Since(info.ModTime()), json.Unmarshal(text, &list)
}

// refresh downloads the lists of packages and writes the index of kernels.
func (a *archive) refresh(ctx context.Context) error {
	mirror, err := a.findMirror(ctx)
	if err != nil {
		return err
	}
	if err := a.configure(mirror); err != nil {
		return err
	}
	out, err := output(ctx, "apt-get", "-c", a.config(), "update")
	if !strings.Contains("\n"+out, "\nHit:") && !strings.Contains("\n"+out, "\nGet:") {
		if err == nil { // apt-get falls back to the previous lists
			err = errors.New(lastLine(out))
		}
		return fmt.Errorf("downloading the lists of packages: %w", err)
	}
	names, err := output(ctx, "apt-cache", "-c", a.config(), "search", "--names-only", `^linux-image-[0-9].*-cloud-amd64$`)
	if err != nil {
		return err
	}
	show := []string{"-c", a.config(), "show"}
	for line := range strings.Lines(names) {
		show = append(show, strings.Fields(line)[0])
	}
	text, err := output(ctx, "apt-cache", show...)
	if err != nil {
		return err
	}
	index, err := json.MarshalIndent(parseKernels(text), "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(a.index(), index, 0o644)
}

// findMirror returns the named mirror of Debian, or the one that the host's apt uses.
func (a *archive) findMirror(ctx context.Context) (string, error) {
	if a.mirror != "" {
		return a.mirror, nil
	}
	return rig.DebianMirror(ctx)
}

// configure writes the configuration of an apt with its own lists and sources, and without
// the host's hooks.
func (a *archive) configure(mirror string) error {
	if _, err := os.Stat(keyring); err != nil {
		return errors.New("no keyring of Debian: install debian-archive-keyring")
	}
	for _, dir := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return err
		}
	}
	var sources strings.Builder
	for _, suite := range suites {
		fmt.Fprintf(&sources, "deb [signed-by=%s] %s %s main\n", keyring, mirror, suite)
	}
	config := fmt.Sprintf(`Dir::State %[1]q;
Dir::State::status "/dev/null";
Dir::State::lists "lists";
Dir::Cache "%[1]s/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "-";
APT::Architecture "amd64";
APT::Architectures { "amd64"; };
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
`, a.dir)
	return errors.Join(
		replaceFile(filepath.Join(a.dir, "sources.list"), []byte(sources.String()), 0o644),
		replaceFile(a.config(), []byte(config), 0o644))
}

// download downloads packages of one version into a directory.
func (a *archive) download(ctx context.Context, dir string, k kernel) error {
	args := []string{"-q", "-c", a.config(), "download"}
	for _, p := range append([]string{k.Package}, k.Needs...) {
		args = append(args, p+"="+k.Version)
	}
	_, err := outputIn(ctx, dir, "apt-get", args...)
	return err
}

// needed matches packages with parts of a kernel: from 6.19 on the package with its name is
// empty and depends on them.
var needed = regexp.MustCompile(`\b(linux-(?:binary|modules)-\S+)`)

// parseKernels reads paragraphs as apt-cache show prints them.
func parseKernels(text string) (list []kernel) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		var k kernel
		for line := range strings.Lines(paragraph) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			switch name {
			case "Package":
				k.Package = value
			case "Version":
				k.Version = value
			case "Depends":
				for _, m := range needed.FindAllStringSubmatch(value, -1) {
					k.Needs = append(k.Needs, m[1])
				}
			}
		}
		if k.Package != "" && series(k.Version) != "" {
			list = append(list, k)
		}
	}
	return list
}
