package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestCompilerID(t *testing.T) {
	qt.Check(t, qt.Equals(parseCompilerID([]byte("# sfpi release\nsfpi_repo='x'\nsfpi_version='7.89.0'\nsfpi_base=''\nsfpi_build='1050'\n")),
		"tenstorrent/sfpi:7.89.0[1050]"))
	qt.Check(t, qt.Equals(parseCompilerID([]byte("sfpi_version='7.5.0'\n")), "tenstorrent/sfpi:7.5.0"))
}

func TestStandInCompiler(t *testing.T) {
	site := t.TempDir()
	version := filepath.Join(site, "ttnn", "tt_metal", "sfpi-version")
	qt.Assert(t, qt.IsNil(writeFile(version, []byte("sfpi_version='7.89.0'\nsfpi_build='1050'\n"), 0o644)))
	env := &Env{SitePackages: site}
	qt.Assert(t, qt.IsNil(env.writeCompiler()))
	gcc := filepath.Join(site, "ttnn", "runtime", "sfpi", "compiler", "bin", "riscv-tt-elf-g++")

	out, err := exec.Command(gcc, "--version").Output()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(out), "riscv-tt-elf-g++ (tenstorrent/sfpi:7.89.0[1050]) 15.1.0\n"))

	dir := t.TempDir()
	for name, want := range map[string]string{"k.o": "", "k.gch": "", "k.elf": string(kernelImage())} {
		cmd := exec.Command(gcc, "-O2", "-c", "-o", name, "a file.cc")
		cmd.Dir = dir
		qt.Assert(t, qt.IsNil(cmd.Run()))
		got, err := os.ReadFile(filepath.Join(dir, name))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(string(got) == want), qt.Commentf("%s", name))
	}
	deps, err := os.ReadFile(filepath.Join(dir, "k.d"))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(string(deps), "k.o:\n"))
}
