package x86

import (
	"encoding/hex"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestVEXLength(t *testing.T) {
	for _, test := range []struct{ asm, code string }{
		{"vzeroupper", "c5f877"},
		{"vxorps xmm0,xmm0,xmm0", "c5f857c0"},
		{"vmovups xmm0,[rip+0x12345678]", "c5f8100578563412"},
		{"vmovups [rsp+0x20],ymm0", "c5fc11442420"},
		{"vmovups [r12+0x390],ymm0", "c4c17c11842490030000"},
		{"vpshufd xmm0,xmm1,1", "c5f970c101"},
		{"vpinsrq xmm0,xmm0,[rdi+8],1", "c4e3f922470801"},
		{"andn eax,ecx,edx", "c4e270f2c2"},
		{"rorx eax,ecx,7", "c4e37bf0c107"},
	} {
		b, err := hex.DecodeString(test.code)
		qt.Assert(t, qt.IsNil(err))
		in, err := Decode(b, 0)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", test.asm))
		qt.Assert(t, qt.Equals(in.Len, len(b)), qt.Commentf("%s", test.asm))
		for n := range b { // an incomplete instruction
			if in, err := Decode(b[:n], 0); err == nil {
				t.Errorf("%s: %d of its bytes are %d bytes long", test.asm, n, in.Len)
			}
		}
	}
}

// Displacements of 4 bytes are signed.
func TestDisplacements(t *testing.T) {
	for _, test := range []struct {
		asm, code string
		want      int64
	}{
		{"mov rax,[rbx-0x100]", "488b8300ffffff", -0x100},
		{"mov rax,[rip-0x20]", "488b05e0ffffff", -0x20},
		{"mov rax,[rbx-8]", "488b43f8", -8},
		{"lea rax,[rbx+rcx*4+0x12345678]", "488d848b78563412", 0x12345678},
		{"vmovups [rbx-0x100],ymm0", "c5fc118300ffffff", -0x100},
		{"movabs al,[0x8070605040302010]", "a01020304050607080", -0x7f8f9fafbfcfdff0},
	} {
		b, err := hex.DecodeString(test.code)
		qt.Assert(t, qt.IsNil(err))
		in, err := Decode(b, 0)
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", test.asm))
		m, _, ok := in.Mem()
		qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%s", test.asm))
		qt.Assert(t, qt.Equals(m.Disp, test.want), qt.Commentf("%s", test.asm))
	}
}
