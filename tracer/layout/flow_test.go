package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// code is a function at 0x1000 without a name.
func code(t testing.TB, hexCode string) *flow {
	t.Helper()
	b, err := hex.DecodeString(hexCode)
	qt.Assert(t, qt.IsNil(err))
	f := &flow{fn: symbolize.Symbol{Addr: 0x1000, Size: uint64(len(b))}}
	f.follow(b)
	return f
}

func TestResult(t *testing.T) {
	// "" is an unknown result
	for _, test := range []struct{ name, asm, code, want string }{
		{"a field", "mov rax,[rdi+0x58]; ret", "488b4758c3", "0x58"},
		{"a field of the implementation", "mov rax,[rdi+0x10]; mov eax,[rax+0x40]; ret", "488b47108b4040c3", "0x10+0x40"},
		{"with a frame pointer", "push rbp; mov rbp,rsp; mov eax,[rdi+0x58]; pop rbp; ret", "554889e58b47585dc3", "0x58"},
		{"behind endbr64", "endbr64; mov rax,[rdi+8]; ret", "f30f1efa488b4708c3", "0x8"},
		{"through a callee-saved register",
			"push rbx; mov rbx,rdi; call f; mov rax,[rbx+0x20]; pop rbx; ret", "534889fbe800000000488b43205bc3", "0x20"},
		{"through a caller-saved register",
			"mov rdx,rdi; call f; mov rax,[rdx+0x20]; ret", "4889fae800000000488b4220c3", ""},
		{"through the stack",
			"sub rsp,0x18; mov [rsp+8],rdi; call f; mov rax,[rsp+8]; add rsp,0x18; mov rax,[rax+0x30]; ret",
			"4883ec1848897c2408e800000000488b4424084883c418488b4030c3", "0x30"},
		{"through an escaped part of the stack",
			"sub rsp,0x18; mov rax,[rdi+8]; mov [rsp],rax; mov rdi,rsp; call f; mov rax,[rsp]; add rsp,0x18; ret",
			"4883ec18488b4708488904244889e7e800000000488b04244883c418c3", ""},
		{"a constant plus a field", "mov eax,0x178; add rax,[rdi]; mov rax,[rax]; ret", "b878010000480307488b00c3", "0x0+0x178"},
		{"behind AVX", "vxorps xmm0,xmm0,xmm0; vmovups [rdi+0x30],ymm0; vzeroupper; mov rax,[rdi+0x18]; ret",
			"c5f857c0c5fc114730c5f877488b4718c3", "0x18"},
		{"AVX that writes the register", "mov rax,[rdi+8]; vmovq rax,xmm0; ret", "488b4708c4e1f97ec0c3", ""},
		{"paths that agree", "cmp byte ptr [rdi+9],0; je 1f; mov rax,[rdi+0x40]; ret; 1: mov rax,[rdi+0x40]; ret",
			"807f09007405488b4740c3488b4740c3", "0x40"},
		{"paths that disagree", "cmp byte ptr [rdi+9],0; je 1f; mov rax,[rdi+0x40]; ret; 1: mov rax,[rdi+0x48]; ret",
			"807f09007405488b4740c3488b4748c3", ""},
		{"paths that join", "cmp byte ptr [rdi+9],0; je 1f; mov rdi,[rdi+0x10]; 1: mov rax,[rdi+0x40]; ret",
			"807f09007404488b7f10488b4740c3", ""},
		{"a loop", "1: mov rdi,[rdi]; test rdi,rdi; jne 1b; mov rax,[rdi+8]; ret", "488b3f4885ff75f8488b4708c3", ""},
		{"an endless loop", "1: jmp 1b", "ebfe", ""},
		{"a byte of the register changed", "mov rax,[rdi+8]; mov al,1; ret", "488b4708b001c3", ""},
		{"a division", "mov rax,[rdi+8]; xor edx,edx; div rcx; ret", "488b470831d248f7f1c3", ""},
		{"an index", "mov rax,[rdi+rsi*8]; ret", "488b04f7c3", ""},
		{"AVX-512, which is not decoded", "vpaddd zmm0,zmm0,zmm1; mov rax,[rdi+8]; ret", "62f17d48fec1488b4708c3", ""},
		{"nothing", "ret", "c3", ""},
		{"no code", "", "", ""},
		{"code that ends early", "mov rax,[rdi+…", "488b47", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, err := result(code(t, test.code))
			if test.want == "" {
				qt.Assert(t, qt.ErrorIs(err, errShape), qt.Commentf("%s: %v", test.asm, c))
				return
			}
			qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", test.asm))
			qt.Assert(t, qt.Equals(c.String(), test.want), qt.Commentf("%s", test.asm))
		})
	}
}

// What is known of a function whose states do not settle in time may be wrong.
func TestTooManyPaths(t *testing.T) {
	var b []byte
	for r := byte(0); r < 8; r++ { // all are the first argument
		if r != x86.RSP {
			b = append(b, 0x48, 0x89, 0xf8|r) // mov r, rdi
		}
	}
	loop := len(b)
	// each time one register fewer is
	for _, r := range []byte{x86.RAX, x86.RCX, x86.RDX, x86.RBX, x86.RBP} {
		next := map[byte]byte{x86.RAX: x86.RCX, x86.RCX: x86.RDX, x86.RDX: x86.RBX, x86.RBX: x86.RBP, x86.RBP: x86.RSI}[r]
		b = append(b, 0x48, 0x89, 0xc0|next<<3|r) // mov r, next
	}
	b = append(b, 0x40, 0x8a, 0x37) // mov sil, [rdi]
	b = append(b, bytes.Repeat([]byte{0x90}, 6000)...)
	b = append(b, 0xe9)
	b = binary.LittleEndian.AppendUint32(b, uint32(loop-len(b)-4))
	qt.Assert(t, qt.ErrorIs(code(t, hex.EncodeToString(b)).err, errShape))
}

// FuzzFollow follows arbitrary bytes: it must neither panic nor take long.
func FuzzFollow(f *testing.F) {
	for _, seed := range []string{
		"488b47108b4040c3", "807f09007404488b7f10488b4740c3", "c5f857c0c5fc114730c5f877488b4718c3", "ebfe",
		"4883ec18488b4708488904244889e7e800000000488b04244883c418c3", "f048" + "0fc108", "c9c3", "f348a5c3",
	} {
		b, err := hex.DecodeString(seed)
		qt.Assert(f, qt.IsNil(err))
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fl := code(t, hex.EncodeToString(b[:min(len(b), x86.MaxCode)]))
		for i, s := range fl.steps {
			s.Access()
			fl.callee(s)
			fl.pair(i, 0)
		}
		result(fl)
		fl.stride()
		fl.table()
		fl.typeMask()
		first(callsObject)(fl)
		banksOfType(fl)
		first(dividend)(fl)
		emulatedStart(fl)
	})
}

func emulatedStart(f *flow) {
	d := &deriver{flows: map[uint64]*flow{f.fn.Addr: f}}
	d.cheapen(&Probe{}, f.fn)
}

func TestProbedInstruction(t *testing.T) {
	for _, test := range []struct {
		name, code string
		emulated   bool
		at         uint64
	}{
		{"push rbp", "554889e5c3", true, 0},
		{"push r15", "4157c3", true, 0},
		{"nop", "90c3", true, 0},
		{"cmp byte ptr [rdi+0x2d0],0; jne 1f", "80bfd002000000" + "7501c3c3", true, 7},
		{"mov byte ptr [rdi],0; jmp 1f; 1: ret", "c60700eb00c3", true, 3},
		{"the stack pointer has moved", "4883ec1848895c2408e800000000c3", false, 0}, // sub rsp,0x18; mov [rsp+8],rbx; call f
		{"the first argument is lost", "488b3f55c3", false, 0},
		{"a multi-byte nop is not emulated", "0f1f00c3", false, 0},
		{"a loop back to before", "488b07" + "4885c0" + "75f8c3", false, 0},
		{"an indirect jump", "ff6710", false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			fl := code(t, test.code)
			d := &deriver{flows: map[uint64]*flow{fl.fn.Addr: fl}}
			p := Probe{Addr: fl.fn.Addr, ProbeAddr: fl.fn.Addr, Stepped: true}
			d.cheapen(&p, fl.fn)
			qt.Assert(t, qt.Equals(p.Stepped, !test.emulated))
			qt.Assert(t, qt.Equals(p.ProbeAddr, fl.fn.Addr+test.at))
		})
	}
}
