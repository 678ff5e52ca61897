package layout

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
)

// TestMark: only an exported function can be probed. A breakpoint in data would be read as data, and the address
// of an indirect function is that of its resolver.
func TestMark(t *testing.T) {
	const function = ".type ttmem_mark,@function\n nop\n nop\n ttmem_mark: nop\n ret\n .size ttmem_mark,.-ttmem_mark"
	for name, test := range map[string]struct {
		code string
		ok   bool
	}{
		"function":  {".globl ttmem_mark\n" + function, true},
		"local":     {function, false},
		"object":    {".globl ttmem_mark\n .type ttmem_mark,@object\n ttmem_mark: .quad 1\n .size ttmem_mark,8", false},
		"no size":   {".globl ttmem_mark\n .type ttmem_mark,@function\n ttmem_mark: ret", false},
		"indirect":  {".globl ttmem_mark\n .type ttmem_mark,@gnu_indirect_function\n ttmem_mark: ret\n .size ttmem_mark,1", false},
		"in data":   {".data\n .globl ttmem_mark\n" + function, false},
		"no symbol": {"nop", false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, library := filepath.Join(dir, "mark.s"), filepath.Join(dir, "mark.so")
			qt.Assert(t, qt.IsNil(os.WriteFile(source, []byte(".text\n"+test.code+"\n"), 0o600)))
			tracetest.Compile(t, "", "cc", library, "-shared", "-nostdlib", source)
			offset, ok := markIn(t, library)
			qt.Check(t, qt.Equals(ok, test.ok))
			if ok {
				qt.Check(t, qt.Equals(offset, tracetest.MustOffset(t, library, markFunction)))
			}
		})
	}
}

// TestMarkOfThePythonPackage: the committed library has the function, which begins with an instruction that the
// kernel need not single-step, and does nothing else.
func TestMarkOfThePythonPackage(t *testing.T) {
	const library = "../../python/ttmem/ttmem/libttmem_mark.so"
	offset, ok := markIn(t, library)
	qt.Assert(t, qt.IsTrue(ok))
	content, err := os.ReadFile(library)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(content[offset:offset+2], []byte{0x90, 0xc3})) // nop, ret
}

func markIn(t *testing.T, library string) (offset uint64, ok bool) {
	t.Helper()
	e, err := symbolize.Open(library)
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	return Mark(e)
}
