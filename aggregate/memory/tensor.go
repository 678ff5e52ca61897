package memory

import (
	"math/bits"
	"strconv"
	"strings"
)

// halfBits are the sizes of a value of each type of a tensor, in halves of a bit. In bfp8 and bfp4, 16 values
// share an exponent of a byte.
var halfBits = map[string]uint64{"bf16": 32, "f32": 64, "u32": 64, "bfp8": 17, "bfp4": 9, "u8": 16, "u16": 32, "i32": 64}

// tensorBytes returns the bytes of the tensor's values, without padding; 0 if they are not known.
func (o *Owner) tensorBytes() uint64 {
	dtype, rest, _ := strings.Cut(o.Tensor, "[")
	shape, _, whole := strings.Cut(rest, "]")
	total := halfBits[dtype]
	if !whole {
		return 0
	}
	for dim := range strings.SplitSeq(shape, ",") {
		n, err := strconv.ParseUint(dim, 10, 32)
		if shape == "" { // one value
			n, err = 1, nil
		}
		over, product := bits.Mul64(total, n)
		if err != nil || over > 0 {
			return 0
		}
		total = product
	}
	return total/16 + min(total%16, 1)
}

// TensorBytes returns the bytes of the values of the tensor in the buffer, on each chip: SizeBytes without
// the padding of tiles. It returns 0 if the tensor's type and shape are not known: only its owner has them.
func (b *Buffer) TensorBytes() uint64 {
	if n := b.tensorBytes(); n <= b.SizeBytes {
		return n
	}
	return 0 // of more than this buffer
}

// PaddingIn returns the part of the buffer's memory that is padding of tiles, of some bytes of it; 0 if that
// is not known.
func (b *Buffer) PaddingIn(bytes uint64) uint64 {
	values := b.TensorBytes()
	if values == 0 {
		return 0
	}
	over, product := bits.Mul64(bytes, b.SizeBytes-values)
	padding, _ := bits.Div64(over, product, b.SizeBytes)
	return padding
}
