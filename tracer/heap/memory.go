package heap

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ttmem/tracer/host"
)

func piecesOf(addresses []uint64, size int) []host.Piece {
	pieces := make([]host.Piece, len(addresses))
	data := make([]byte, len(addresses)*size)
	for i, at := range addresses {
		pieces[i] = host.Piece{Address: at, Data: data[i*size : (i+1)*size : (i+1)*size]}
	}
	return pieces
}

// errUnreadable means that there is no memory at an address.
var errUnreadable = errors.New("not readable")

func readBytes(m host.Memory, address uint64, size int) ([]byte, error) {
	if size == 0 {
		return nil, nil // an empty vector, whose address is meaningless
	}
	p := piecesOf([]uint64{address}, size)
	if err := m.Read(p); err != nil {
		return nil, err
	}
	if !p[0].OK {
		return nil, fmt.Errorf("%#x: %w", address, errUnreadable)
	}
	return p[0].Data, nil
}

// word is the 8 bytes at an offset.
func word(b []byte, at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }

// elements is the number of elements between two pointers, as in a std::vector; false if it
// exceeds a bound or is not a whole number.
func elements(begin, end, size, bound uint64) (int, bool) {
	if end < begin || (end-begin)%size != 0 || (end-begin)/size > bound {
		return 0, false
	}
	return int((end - begin) / size), true
}
