package memory

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestBytesOfATensorsValues(t *testing.T) {
	for _, test := range []struct {
		tensor       string
		size, values uint64
	}{
		{"bf16[4096,64,2] TILE", 16 << 20, 1 << 20},
		{"bf16[1,500000] TILE", 32_000_000, 1_000_000},
		{"f32[3,5] ROW_MAJOR", 60, 60},
		{"bfp8[32,64] TILE", 2 * 1088, 2 * 1088},
		{"bfp4[32,32] TILE", 576, 576},
		{"bfp4[1] TILE", 576, 1},
		{"bf16[] TILE", 2048, 2},
		{"u8[7] ROW_MAJOR", 4, 0}, // more than the buffer has
		{"bf16[32,0] TILE", 2048, 0},
		{"global_semaphore", 2048, 0},
		{"", 2048, 0},
		{"f8[32] TILE", 2048, 0}, // a type that is not known
		{"bf16[4294967295,4294967295,4294967295] TILE", 1 << 63, 0},
		{"bf16[-1] TILE", 2048, 0},
		{"bf16[32,32", 2048, 0},
	} {
		b := Buffer{Allocation: &Allocation{SizeBytes: test.size}, Owner: Owner{Path: "x", Tensor: test.tensor}}
		qt.Check(t, qt.Equals(b.TensorBytes(), test.values), qt.Commentf("%s", test.tensor))
	}
}

// TestPaddingIsAPartOfWhatIsReserved: of the memory in all banks, and of that in one.
func TestPaddingIsAPartOfWhatIsReserved(t *testing.T) {
	b := Buffer{Allocation: &Allocation{SizeBytes: 16 << 20}, Owner: Owner{Tensor: "bf16[4096,64,2] TILE"}}
	qt.Check(t, qt.Equals(b.PaddingIn(16<<20), 15<<20))
	qt.Check(t, qt.Equals(b.PaddingIn(1600), 1500))
	b.SizeBytes = 1 << 63
	qt.Check(t, qt.Equals(b.PaddingIn(1<<63), 1<<63-1<<20))
	b.Tensor = ""
	qt.Check(t, qt.Equals(b.PaddingIn(1600), 0))
}
