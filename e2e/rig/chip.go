package rig

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A mock device runs nothing. A simulated chip executes: firmware, kernels that are compiled for its
// processors, and copies of real contents. It takes the host's place of a card, with slow dispatch.

// simulator is the package of PyPI that simulates a Wormhole or Blackhole chip.
var simulator = []string{"wolfpine==2.2"}

// ChipTools are the packages of Debian with the compiler of the chip's kernels.
var ChipTools = []string{"gcc-riscv64-unknown-elf", "picolibc-riscv64-unknown-elf", "g++"}

//go:embed chip/*
var chipFiles embed.FS

// chip is a simulator and tt-metal's files for it.
type chip struct {
	dir       string // with a tree of tt-metal's files, in which the compiler and its objects are replaced
	simulator string // the folder with one folder for each architecture
}

// Chip returns the same installation for programs that run on a simulated chip: of board N150 or P150,
// which are all that the simulator has. It sets up what is missing first.
func (e *Env) Chip(ctx context.Context, to io.Writer) (*Env, error) {
	if e.Version != DefaultVersion {
		return nil, fmt.Errorf("the simulated chip is for ttnn %s", DefaultVersion)
	}
	python, err := PythonWith(ctx, "3.10", to, simulator...)
	if err != nil {
		return nil, err
	}
	dir, err := e.chipDir(python)
	if err != nil {
		return nil, err
	}
	say := progress(to)
	unlock, err := Lock(ctx, dir+".lock", func() { say("waiting for another set-up of the chip's compiler …") })
	if err != nil {
		return nil, err
	}
	defer unlock()
	on := *e
	on.chip = &chip{dir, filepath.Join(filepath.Dir(filepath.Dir(python)), "lib", "python3.10", "site-packages", "framework", "sim")}
	if _, err := os.Stat(filepath.Join(dir, compilerDir, "include", "c++", "cstdint")); err == nil { // not gone with the host's compiler
		return &on, nil
	}
	common, target, err := hostHeaders(ctx)
	if err != nil {
		return nil, err
	}
	say("preparing the compiler of the chip's kernels (once) …")
	work := dir + ".work"
	defer os.RemoveAll(work)
	for _, old := range []string{work, dir} {
		if err := os.RemoveAll(old); err != nil {
			return nil, err
		}
	}
	if err := e.makeChip(ctx, work, python, common, target); err != nil {
		return nil, fmt.Errorf("preparing the compiler of the chip's kernels: %w", err)
	}
	return &on, os.Rename(work, dir)
}

// chipDir is where the chip's files are: its name changes with what they are made of.
func (e *Env) chipDir(python string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	h.Write([]byte(python))
	entries, err := chipFiles.ReadDir("chip")
	if err != nil {
		return "", err
	}
	for _, entry := range entries {
		text, err := chipFiles.ReadFile("chip/" + entry.Name())
		if err != nil {
			return "", err
		}
		h.Write(text)
	}
	return filepath.Join(cache, "chip", fmt.Sprintf("%s-py%s-%x", e.Version, e.PythonVersion, h.Sum64())), nil
}

// Where tt-metal looks for its compiler, below the folder with its files.
const (
	compilerDir  = "runtime/sfpi/compiler/bin"
	compilerName = "riscv-tt-elf-g++"
)

const (
	riscvCompiler = "riscv64-unknown-elf-g++"
	picolibc      = "/usr/lib/picolibc/riscv64-unknown-elf/lib/rv32im/ilp32/libc.a"
)

// hostHeaders returns the folders of the host's C++ library: what all machines share, and its
// configuration for this one.
func hostHeaders(ctx context.Context) (common, target string, err error) {
	missing := fmt.Errorf("no compiler of the chip's kernels: `sudo apt install %s`", strings.Join(ChipTools, " "))
	for _, tool := range []string{riscvCompiler, "g++"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", "", missing
		}
	}
	if _, err := os.Stat(picolibc); err != nil {
		return "", "", missing
	}
	out, err := exec.CommandContext(ctx, "g++", "-xc++", "-M", "-include", "bits/c++config.h", "-include", "cstdint", "/dev/null").Output()
	if err != nil {
		return "", "", missing
	}
	for _, path := range strings.Fields(string(out)) {
		if dir, ok := strings.CutSuffix(path, "/bits/c++config.h"); ok {
			target = dir
		} else if dir, ok := strings.CutSuffix(path, "/cstdint"); ok {
			common = dir
		}
	}
	if common == "" || target == "" {
		return "", "", missing
	}
	return common, target, nil
}

// makeChip fills a folder: tt-metal's files with a compiler for the chip's kernels, and the objects that
// are linked into each, which in the wheel are intermediate code of another compiler. common and target
// are folders of the host's C++ library.
func (e *Env) makeChip(ctx context.Context, dir, python, common, target string) error {
	pkg := filepath.Join(e.SitePackages, "ttnn")
	bin := filepath.Join(dir, compilerDir)
	for _, folder := range []string{filepath.Join(bin, "include"), filepath.Join(dir, "runtime", "hw", "lib")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	for to, from := range map[string]string{
		filepath.Join(dir, "tt_metal"):                   filepath.Join(pkg, "tt_metal"),
		filepath.Join(dir, "ttnn"):                       filepath.Join(pkg, "ttnn"),
		filepath.Join(dir, "runtime", "hw", "toolchain"): filepath.Join(pkg, "runtime", "hw", "toolchain"),
		filepath.Join(bin, "include", "c++"):             common,
	} {
		if err := os.Symlink(from, to); err != nil {
			return err
		}
	}
	id, err := compilerID(pkg)
	if err != nil {
		return err
	}
	files := map[string]string{"version": id + "\n"}
	for _, name := range []string{"prefix.h", "lltt.h", "sfpi.h"} {
		text, err := chipFiles.ReadFile("chip/" + name)
		if err != nil {
			return err
		}
		files["include/"+name] = string(text)
	}
	if err := configureLibrary(filepath.Join(target, "bits"), files); err != nil {
		return err
	}
	for name, text := range files {
		if err := writeFile(filepath.Join(bin, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	compiler, err := chipFiles.ReadFile("chip/compiler.py")
	if err != nil {
		return err
	}
	if err := writeFile(filepath.Join(bin, compilerName), compiler, 0o755); err != nil {
		return err
	}
	// The simulator has a session of its own: it must not outlive the program that started it.
	start := "#!/bin/sh\nexec setpriv --pdeathsig KILL -- " + shellQuote(python) + ` "$@"` + "\n"
	if err := writeFile(filepath.Join(dir, "simulator"), []byte(start), 0o755); err != nil {
		return err
	}
	data := exec.CommandContext(ctx, riscvCompiler, "-march=rv32im", "-mabi=ilp32", "-xc", "-c", "-o", filepath.Join(bin, "data.o"), "-")
	data.Stdin = strings.NewReader("__attribute__((used, retain)) static int data = 1;\n")
	if out, err := data.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %s", riscvCompiler, cmp.Or(lastWords(string(out)), err.Error()))
	}
	for _, c := range chips {
		if err := c.compileObjects(ctx, dir, pkg); err != nil {
			return err
		}
	}
	return nil
}

// configureLibrary adds the C++ library's configuration for this host, changed for a chip without
// threads, Linux and a second type of floating point.
func configureLibrary(bits string, files map[string]string) error {
	entries, err := os.ReadDir(bits)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		text, err := os.ReadFile(filepath.Join(bits, entry.Name()))
		if err != nil {
			return err
		}
		files["include/target/bits/"+entry.Name()] = string(text)
	}
	const config = "include/target/bits/c++config.h"
	files[config] = hostOnly.ReplaceAllString(files[config], "")
	files["include/target/bits/os_defines.h"] = ""
	files["include/target/bits/gthr-default.h"] = files["include/target/bits/gthr-single.h"]
	return nil
}

var hostOnly = regexp.MustCompile(`(?m)^# *define (_GLIBCXX_HAS_GTHREADS|_GLIBCXX_HAVE_LINUX_FUTEX|_GLIBCXX_HAVE_TLS|` +
	`_GLIBCXX_USE_FLOAT128|_GLIBCXX_USE_DEV_RANDOM|_GLIBCXX_USE_RANDOM_TR1|_GTHREAD_USE_MUTEX_TIMEDLOCK)\b.*$`)

// chips are the architectures that the simulator has, by their names in tt-metal's tree.
var chips = []chipSpec{
	{arch: "wormhole_b0", name: "wormhole", cpu: "tt-wh"},
	{arch: "blackhole", name: "blackhole", cpu: "tt-bh"},
}

type chipSpec struct{ arch, name, cpu string }

// compileObjects makes the folder of objects that are linked into kernels and firmware.
func (c chipSpec) compileObjects(ctx context.Context, dir, pkg string) error {
	from, to := filepath.Join(pkg, "runtime", "hw", "lib", c.name), filepath.Join(dir, "runtime", "hw", "lib", c.name)
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	firmware, hw := "hw/firmware/src/tt-1xx/", "hw/inc/internal/tt-1xx/"+c.name
	sources := map[string]string{
		"noc.o": firmware + c.name + "/noc.c", "tdma_xmov.o": firmware + "tdma_xmov.c", "substitutes.o": "hw/toolchain/substitutes.cpp",
	}
	args := []string{"-mcpu=" + c.cpu, "-std=c++17", "-Os", "-ffast-math", "-fno-exceptions", "-fno-use-cxa-atexit",
		"-fno-tree-loop-distribute-patterns", "-DTENSIX_FIRMWARE", "-I" + pkg}
	for _, folder := range []string{".", "api", "api/tt-metalium", "hw/inc", "hw/inc/debug", firmware, hw, hw + "/" + c.arch + "_defines",
		hw + "/noc", hw + "/overlay", "hw/ckernels/" + c.arch + "/metal/common", "hw/ckernels/" + c.arch + "/metal/llk_io",
		"tt-llk/tt_llk_" + c.arch + "/common/inc", "tt-llk/tt_llk_" + c.arch + "/llk_lib"} {
		args = append(args, "-I"+filepath.Join(pkg, "tt_metal", folder))
	}
	for _, entry := range entries {
		source, compiled := sources[entry.Name()]
		object := filepath.Join(to, entry.Name())
		if !compiled {
			if err := os.Symlink(filepath.Join(from, entry.Name()), object); err != nil {
				return err
			}
			continue
		}
		compile := slices.Concat(args, []string{"-c", "-o", object, filepath.Join(pkg, "tt_metal", source)})
		cmd := exec.CommandContext(ctx, filepath.Join(dir, compilerDir, compilerName), compile...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %s", source, cmp.Or(lastWords(string(out)), err.Error()))
		}
	}
	return nil
}

// vars are the variables of programs on a chip.
func (c *chip) vars(board Board) ([]string, error) {
	s, err := board.spec()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(chips, func(spec chipSpec) bool { return spec.arch == s.arch })
	if s.rows*s.cols != 1 || i < 0 {
		return nil, fmt.Errorf("no simulated %s: choose %s or %s", board, N150, P150)
	}
	simulated := filepath.Join(c.simulator, chips[i].name)
	return []string{
		"TT_METAL_SIMULATOR=" + simulated,
		// With it, cores have the coordinates that those of cards have.
		"TT_METAL_MOCK_CLUSTER_DESC_PATH=" + filepath.Join(simulated, "cluster_descriptor.yaml"),
		"TT_METAL_RUNTIME_ROOT=" + c.dir,
		"WOLFPINE_PYTHON=" + filepath.Join(c.dir, "simulator"),
		"TT_METAL_SLOW_DISPATCH_MODE=1",
	}, nil
}
