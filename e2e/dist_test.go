package e2e

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// A release is a Debian package and a tarball with right checksums. The program in both is static
// and runs.
func TestDist(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func(in, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "DPKG_DEB_COMPRESSOR_TYPE=none") // compression would take longest
		out, err := cmd.CombinedOutput()
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s %q: %s", name, args, out))
		return string(out)
	}
	run("..", "make", "dist", "DIST="+dir, "COMPRESS=-1")
	run(dir, "sha256sum", "--check", "SHA256SUMS")
	for kind, unpack := range map[string][]string{
		"*.deb":    {"dpkg-deb", "-x"},
		"*.tar.gz": {"tar", "--one-top-level=usr", "-xf"},
	} {
		files, err := filepath.Glob(filepath.Join(dir, kind))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(files, 1))
		root := t.TempDir()
		args := append(unpack, files[0])
		if unpack[0] == "dpkg-deb" {
			args = append(args, root)
		}
		run(root, args[0], args[1:]...)
		checkStatic(t, filepath.Join(root, "usr/bin/ttmem"))
		qt.Check(t, qt.Matches(run(root, filepath.Join(root, "usr/bin/ttmem"), "version"), `ttmem version [0-9.]+(\+\w+(-dirty)?)?\n`))
		for _, file := range []string{"share/man/man1/ttmem-run.1", "share/bash-completion/completions/ttmem", "lib/systemd/system/ttmem.service", "share/doc/ttmem/LICENSE"} {
			run(root, "test", "-s", filepath.Join("usr", file))
		}
		// the pages that help texts and README.md name, by the same paths
		pages, err := filepath.Glob("../docs/*.md")
		qt.Assert(t, qt.IsNil(err))
		for _, page := range append(pages, "../README.md", "../python/ttmem/README.md", "../docs/schema.json") {
			installed := filepath.Join(root, "usr/share/doc/ttmem", strings.TrimPrefix(page, "../"))
			run("..", "cmp", page[len("../"):], installed)
			info, err := os.Stat(installed)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(info.Mode().Perm(), 0o644), qt.Commentf("%s", installed))
		}
	}
}

// checkStatic checks that a program needs no dynamic linker and no libraries.
func checkStatic(t *testing.T, program string) {
	t.Helper()
	f, err := elf.Open(program)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	for _, segment := range f.Progs {
		qt.Check(t, qt.Not(qt.Equals(segment.Type, elf.PT_INTERP)))
	}
	libraries, err := f.ImportedLibraries()
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(libraries, 0))
}
