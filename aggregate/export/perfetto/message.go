package perfetto

import (
	"encoding/binary"
	"math"
)

// A message is an encoded protobuf message. Its methods append a field.
type message []byte

// Wire types of protobuf.
const (
	varint = 0
	fixed  = 1
	length = 2
)

func (m *message) tag(field, wire int) { *m = binary.AppendUvarint(*m, uint64(field)<<3|uint64(wire)) }

func (m *message) uint(field int, v uint64) {
	m.tag(field, varint)
	*m = binary.AppendUvarint(*m, v)
}

func (m *message) double(field int, v float64) {
	m.tag(field, fixed)
	*m = binary.LittleEndian.AppendUint64(*m, math.Float64bits(v))
}

func (m *message) text(field int, s string) {
	m.tag(field, length)
	*m = append(binary.AppendUvarint(*m, uint64(len(s))), s...)
}

func (m *message) message(field int, sub message) {
	m.tag(field, length)
	*m = append(binary.AppendUvarint(*m, uint64(len(sub))), sub...)
}

// list appends each number of a list.
func (m *message) list(field int, list []uint64) {
	for _, v := range list {
		m.uint(field, v)
	}
}
