package x86

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// library compiles C++ and returns a machine for it. Addresses are those in the file, and the
// objects of the process are in memory.
func library(t *testing.T, source string, memory map[uint64][]byte) (*Machine, func(name string) uint64) {
	t.Helper()
	dir := t.TempDir()
	file, out := filepath.Join(dir, "a.cc"), filepath.Join(dir, "a.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(source), 0o600)))
	text, err := exec.Command("g++", "-O2", "-shared", "-fPIC", "-fno-stack-protector", "-o", out, file).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", text))
	e, err := symbolize.Open(out)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { e.Close() })
	function := func(name string) (uint64, bool) {
		s, ok := e.Lookup(name)
		return s.Addr, ok
	}
	m := &Machine{
		Modules: []Module{{Start: 0, End: 1 << 32, PLT: e.PLTName, Function: function}},
		Read: func(at uint64, b []byte) bool {
			for from, data := range memory {
				if at >= from && at+uint64(len(b)) <= from+uint64(len(data)) {
					copy(b, data[at-from:])
					return true
				}
			}
			code, err := e.Text(at, len(b))
			return err == nil && copy(b, code) == len(b)
		},
	}
	return m, func(name string) uint64 { return m.Function(name) }
}

const classes = `
#include <cstdint>
#include <memory>
struct Inner { uint64_t a, b; };
struct Holder { uint8_t kind; Inner *inner; std::shared_ptr<Inner> shared; uint32_t narrow; int16_t negative; uint64_t list[4]; };
struct Outer { Holder *holder; };
extern "C" {
uint64_t plain(const Outer *o) { return o->holder->inner->b; }
__attribute__((noinline)) uint64_t through(const Outer *o) { return plain(o) + 1; }
uint64_t chosen(const Outer *o) {
	switch (o->holder->kind) {
	case 0: return 100;
	case 1: return o->holder->inner->a;
	case 2: return o->holder->narrow;
	case 3: return (uint64_t)(int64_t)o->holder->negative;
	case 4: return o->holder->list[o->holder->narrow & 3] << 4 | 5;
	}
	return o->holder->inner->a > o->holder->inner->b ? 7 : 8;
}
void endless(const volatile Outer *o) { while (o->holder) ; }
void much(Outer *o) { for (int i = 0; i < 4096; i++) ((volatile char *)o)[i] = 1; }
}
std::shared_ptr<Inner> counted(const Outer *o) { return o->holder->shared; }
`

func words(values ...uint64) (b []byte) {
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// TestCompiledFunctions: functions return what they would in the process.
func TestCompiledFunctions(t *testing.T) {
	const outer, holder, inner, count = 0x7000_0000_0000, 0x7000_0000_1000, 0x7000_0000_2000, 0x7000_0000_3000
	for kind, want := range []uint64{100, 11, 2, ^uint64(2), 33<<4 | 5, 8} {
		memory := map[uint64][]byte{
			outer:  words(holder),
			holder: words(uint64(kind), inner, inner, count, 2|0xfffd<<32, 31, 32, 33, 34),
			inner:  words(11, 22),
			count:  words(0, 1),
		}
		m, function := library(t, classes, memory)
		for name, result := range map[string]uint64{"plain": 22, "through": 23, "chosen": want} {
			got, _, err := m.Call(function(name), outer)
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s of kind %d", name, kind))
			qt.Check(t, qt.Equals(got, result), qt.Commentf("%s of kind %d", name, kind))
		}
		got, err := m.CallForObject(function("_Z7countedPK5Outer"), outer)
		if err == nil { // it reads __libc_single_threaded, which this test does not have
			qt.Check(t, qt.Equals(got, uint64(inner)))
		}
		qt.Check(t, qt.DeepEquals(memory[count], words(0, 1))) // nothing is written

		_, _, err = m.Call(function("endless"), outer)
		qt.Check(t, qt.ErrorIs(err, errSteps))
		_, _, err = m.Call(function("much"), outer)
		qt.Check(t, qt.ErrorIs(err, errWrites))
		_, _, err = m.Call(function("plain"), 16)
		qt.Check(t, qt.ErrorIs(err, errReads))
	}
}

// FuzzCall runs random code on random memory.
func FuzzCall(f *testing.F) {
	f.Add([]byte{0x48, 0x8b, 0x47, 0x08, 0xc3}, uint64(64))
	f.Add([]byte{0x48, 0x8d, 0x47, 0x28, 0x48, 0x83, 0x7f, 0x28, 0x00, 0x48, 0x0f, 0x44, 0xc7, 0xc3}, uint64(1))
	f.Add([]byte{0xf0, 0xff, 0x40, 0x08, 0xe8, 0, 0, 0, 0, 0xeb, 0xfe}, uint64(0))
	f.Fuzz(func(t *testing.T, code []byte, argument uint64) {
		m := &Machine{Read: func(at uint64, b []byte) bool {
			for i := range b {
				if len(code) == 0 || at > 1<<47 {
					return false
				}
				b[i] = code[(at+uint64(i))%uint64(len(code))]
			}
			return true
		}}
		_, _, _ = m.Call(0x1000, argument)
		_, _ = m.CallForObject(0x1000, argument)
	})
}
