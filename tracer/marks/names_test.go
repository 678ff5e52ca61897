package marks

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

func TestIsNamed(t *testing.T) {
	const symbol = "_ZN4ttnn7softmaxERKNS_6TensorEi"
	for name, want := range map[string]bool{
		symbol:          true,
		"ttnn::softmax": true,
		"ttnn::softmax(ttnn::Tensor const&, int)": true,
		"ttnn::softmax(int)":                      false,
		"softmax":                                 false,
		"ttnn::soft":                              false,
		"ttnn::softmax2":                          false,
	} {
		qt.Check(t, qt.Equals(isNamed(symbol, name), want), qt.Commentf("%s", name))
	}
	qt.Check(t, qt.IsTrue(isNamed("malloc", "malloc")))
	qt.Check(t, qt.IsTrue(isNamed("_ZN1AplERKS_", "A::operator+")))
}

// libc is the C library that programs of this machine map.
func libc(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", "grep -o '/[^ ]*libc\\.so[^ ]*' /proc/self/maps | head -1").Output()
	qt.Assert(t, qt.IsNil(err))
	path := strings.TrimSpace(string(out))
	if path == "" {
		t.Skip("programs of this machine map no libc.so")
	}
	return path
}

func TestFunctionsNamed(t *testing.T) {
	e, err := symbolize.Open(libc(t))
	qt.Assert(t, qt.IsNil(err))
	defer e.Close()
	offsets, numbers := functionsNamed(e, []string{"no_such_function", "qsort", "stdout"})
	qt.Assert(t, qt.DeepEquals(numbers, []uint64{1})) // stdout is no function
	symbol, ok := e.Lookup("qsort")
	qt.Assert(t, qt.IsTrue(ok))
	offset, _ := e.FileOffset(symbol.Addr)
	qt.Check(t, qt.DeepEquals(offsets, []uint64{offset}))
}

func TestLastIdentifier(t *testing.T) {
	for name, want := range map[string]string{
		"ttnn::softmax": "softmax", "softmax": "softmax", "A::~A": "A", "a::f(b::c)": "f",
		"A::operator+": "", "main::{lambda#1}": "",
	} {
		qt.Check(t, qt.Equals(lastIdentifier(name), want), qt.Commentf("%s", name))
	}
}
