package rig

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// What a chip cannot be set up for is one line that says what to do.
func TestNoChip(t *testing.T) {
	_, err := (&Env{Version: "0.76.0"}).Chip(t.Context(), nil)
	qt.Check(t, qt.ErrorMatches(err, "the simulated chip is for ttnn "+DefaultVersion))

	on := &Env{Version: DefaultVersion, chip: new(chip)}
	_, err = on.Environ("n300")
	qt.Check(t, qt.ErrorMatches(err, "no simulated n300: choose n150 or p150"))

	t.Setenv("PATH", t.TempDir())
	_, _, err = hostHeaders(t.Context())
	qt.Check(t, qt.ErrorMatches(err, "no compiler of the chip's kernels: `sudo apt install gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf g[+][+]`"))
}

// A board decides which chip is simulated; other settings of the caller do not reach it.
func TestChipVariables(t *testing.T) {
	t.Setenv("TTMEM_CACHE", t.TempDir())
	t.Setenv("TT_SIM_TENSIX_CORES", "1")
	on := &Env{Version: DefaultVersion, chip: &chip{dir: "/chip", simulator: "/sim"}}
	for board, want := range map[Board]string{N150: "/sim/wormhole", P150: "/sim/blackhole"} {
		vars, err := on.Environ(board)
		qt.Assert(t, qt.IsNil(err))
		all := strings.Join(vars, "\n") + "\n"
		for _, v := range []string{"TT_METAL_SIMULATOR=" + want, "TT_METAL_SLOW_DISPATCH_MODE=1", "TT_METAL_RUNTIME_ROOT=/chip"} {
			qt.Check(t, qt.StringContains(all, v+"\n"))
		}
		qt.Check(t, qt.IsFalse(strings.Contains(all, "TT_SIM_")))
	}
}

// The compiler leaves out the bodies of functions with vectors, and nothing else.
func TestWithoutVectors(t *testing.T) {
	python, err := anyPip(t.Context())
	qt.Assert(t, qt.IsNil(err))
	const source = `# 1 "kernel.cc"
namespace a { struct S { int x; void m() const { x; } };
const char *s = "} sfpi::", c = '{';
template <int N> inline void vectors(int i) { for (;;) { sfpi::vFloat v = dst_reg[i]; } }
sfpi::vFloat none(sfpi::vFloat v);
void scalars() { int list[] = {1, 2}; if (list[0]) { return; } }
#pragma GCC unroll N
#pragma GCC unroll 4
}
`
	want := strings.NewReplacer(
		" for (;;) { sfpi::vFloat v = dst_reg[i]; } }", "}",
		"#pragma GCC unroll N", "",
	).Replace(source)
	script, err := filepath.Abs("chip")
	qt.Assert(t, qt.IsNil(err))
	cmd := exec.Command(python, "-Bc", "import compiler, sys; sys.stdout.buffer.write(compiler.without_vectors(sys.stdin.buffer.read()))")
	cmd.Dir, cmd.Stdin = script, strings.NewReader(source)
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.Equals(string(out), want))
}
