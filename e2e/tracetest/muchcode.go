package tracetest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"
)

// muchCode is a source with a tenth of the unwind rows of libtorch_cpu.so, which has three
// million. Each library has it ten times: it takes long to assemble.
const muchCode = `
	.text
	.rept 11000
	.cfi_startproc
	.rept 14
	push %rax
	.cfi_adjust_cfa_offset 8
	.endr
	.skip 64, 0x90
	.rept 14
	pop %rax
	.cfi_adjust_cfa_offset -8
	.endr
	ret
	.cfi_endproc
	.endr
	.section .note.GNU-stack,"",@progbits
`

// MuchCode builds n libraries with much code, each of another build. Three of them have as
// many unwind rows as all that a program maps which imports PyTorch and ttnn. args add to
// each library's sources and options, relative to dir.
func MuchCode(t *testing.T, n int, dir string, args ...string) (libraries []string) {
	t.Helper()
	out := t.TempDir()
	source, object := filepath.Join(out, "much.s"), filepath.Join(out, "much.o")
	qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(muchCode), 0o600)))
	Compile(t, out, "gcc", object, "-c", source)
	for i := range n {
		library := filepath.Join(out, fmt.Sprintf("much%d.so", i))
		options := []string{"-shared", "-fPIC", fmt.Sprintf("-Wl,--build-id=0x%08x", i+1)}
		options = append(options, slices.Repeat([]string{object}, 10)...)
		Compile(t, dir, "g++", library, append(options, args...)...)
		libraries = append(libraries, library)
	}
	return libraries
}
