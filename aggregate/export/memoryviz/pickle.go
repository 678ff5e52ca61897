package memoryviz

import (
	"encoding/binary"
	"math/bits"
)

// A pickle appends values in protocol 2 of Python's pickle. The viewer reads a part of the opcodes.
type pickle []byte

// batch is how many values one APPENDS takes: the viewer makes arguments of a call of them.
const batch = 1000

// The opcodes.
const (
	opProto      = 0x80
	opStop       = '.'
	opMark       = '('
	opEmptyDict  = '}'
	opSetItems   = 'u'
	opEmptyList  = ']'
	opAppends    = 'e'
	opUnicode    = 'X'
	opInt        = 'J'
	opInt1       = 'K'
	opInt2       = 'M'
	opLong1      = 0x8a
	opLongPut    = 'r'
	opGet        = 'h'
	opLongGet    = 'j'
	protocol     = 2
	int64Length  = 8
	maxShortMemo = 0xff
)

func (p *pickle) op(ops ...byte) { *p = append(*p, ops...) }

func (p *pickle) text(s string) {
	p.op(opUnicode)
	*p = binary.LittleEndian.AppendUint32(*p, uint32(len(s)))
	*p = append(*p, s...)
}

// number appends a number of less than 1<<63.
func (p *pickle) number(n uint64) {
	switch {
	case n < 1<<8:
		p.op(opInt1, byte(n))
	case n < 1<<16:
		p.op(opInt2, byte(n), byte(n>>8))
	case n < 1<<31:
		p.op(opInt)
		*p = binary.LittleEndian.AppendUint32(*p, uint32(n))
	default:
		length := bits.Len64(n)/8 + 1 // with room for a sign
		var b [int64Length]byte
		binary.LittleEndian.PutUint64(b[:], n)
		p.op(opLong1, byte(length))
		*p = append(*p, b[:length]...)
	}
}

// put gives the value before it a number, for get.
func (p *pickle) put(memo int) {
	p.op(opLongPut)
	*p = binary.LittleEndian.AppendUint32(*p, uint32(memo))
}

func (p *pickle) get(memo int) {
	if memo <= maxShortMemo {
		p.op(opGet, byte(memo))
		return
	}
	p.op(opLongGet)
	*p = binary.LittleEndian.AppendUint32(*p, uint32(memo))
}

// list appends a list of n values, which each appends.
func (p *pickle) list(n int, each func(i int)) {
	p.op(opEmptyList)
	for i := range n {
		if i%batch == 0 {
			p.op(opMark)
		}
		each(i)
		if i%batch == batch-1 || i == n-1 {
			p.op(opAppends)
		}
	}
}
