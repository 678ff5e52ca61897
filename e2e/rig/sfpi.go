package rig

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// compilerScript replaces the device compiler, which is not in the wheel. It is plain shell
// because compiling a program takes dozens of calls. The first line of the output of
// --version decides whether the wheel's precompiled firmware is used. Programs that run beside
// each other share the cache: an image is there as a whole or not at all.
const compilerScript = `#!/bin/sh
# A stand-in for the device compiler: on a mock device no kernel is ever run.
out= prev=
for arg in "$@"; do
	case $arg in
	--version) echo "riscv-tt-elf-g++ (%s) 15.1.0"; exit 0 ;;
	esac
	[ "$prev" = -o ] && out=$arg
	prev=$arg
done
case $out in
*.o) : >"$out"; echo "$out:" >"${out%%.o}.d" ;;
*.gch) : >"$out" ;;
*.elf) cp "${0%%/*}/kernel.elf" "$out.$$" && mv "$out.$$" "$out" ;;
esac
`

// writeCompiler writes the stand-in to the place where the library looks for its compiler.
// It does so in each set-up, if the content differs, to repair old caches.
func (e *Env) writeCompiler() error {
	pkg := filepath.Join(e.SitePackages, "ttnn")
	id, err := compilerID(pkg)
	if err != nil {
		return err
	}
	bin := filepath.Join(pkg, compilerDir)
	if err := writeFile(filepath.Join(bin, "kernel.elf"), kernelImage(), 0o644); err != nil {
		return fmt.Errorf("writing the stand-in compiler: %w", err)
	}
	script := fmt.Appendf(nil, compilerScript, id)
	for _, name := range []string{compilerName, "riscv32-tt-elf-g++"} {
		if err := writeFile(filepath.Join(bin, name), script, 0o755); err != nil {
			return fmt.Errorf("writing the stand-in compiler: %w", err)
		}
	}
	return nil
}

var assignment = regexp.MustCompile(`(?m)^sfpi_(version|build)='?([^'\s]*)'?`)

// compilerID returns the name of the compiler that a release requires, such as
// "tenstorrent/sfpi:7.89.0[1050]".
func compilerID(pkg string) (string, error) {
	b, err := os.ReadFile(filepath.Join(pkg, "tt_metal", "sfpi-version"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) { // 0.66 and 0.67 neither have nor check it
		return "", fmt.Errorf("reading the compiler version: %w", err)
	}
	return parseCompilerID(b), nil
}

func parseCompilerID(b []byte) string {
	vars := map[string]string{}
	for _, m := range assignment.FindAllSubmatch(b, -1) {
		vars[string(m[1])] = string(m[2])
	}
	id := "tenstorrent/sfpi:" + vars["version"]
	if build := vars["build"]; build != "" {
		id += "[" + build + "]"
	}
	return id
}
