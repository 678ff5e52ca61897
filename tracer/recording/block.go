package recording

import (
	"encoding/binary"
	"hash/crc32"
)

// blockHead is the length of a block's head.
const blockHead = 40

// The kinds of blocks. A reader may skip an unknown kind if it is lower case.
const (
	blockEvents = 'D'
	blockEnd    = 'E'
	// blockState is a checkpoint, or a part of one.
	blockState = 'c'
)

// The flags of a block.
const (
	// blockReset: the block resets the definitions.
	blockReset = 1 << iota
	// blockPlain: the payload is not compressed.
	blockPlain
	// blockMore: the checkpoint continues in the next block.
	blockMore
	// blockOwners: all events of the block are Owners. It also resets the definitions, so that it can
	// be read alone.
	blockOwners
)

// head is the head of a block.
type head struct {
	kind, flags      byte
	packed, raw      uint32 // the payload's length, as written and before compression
	events           uint32
	earliest, latest uint64 // the range of the events' times
	checksum         uint32 // of the rest of the block, for reading only
}

// put writes the head at the beginning of a block.
func (h *head) put(block []byte) {
	le := binary.LittleEndian
	copy(block, mark)
	block[8], block[9] = h.kind, h.flags
	le.PutUint32(block[12:], h.packed)
	le.PutUint32(block[16:], h.raw)
	le.PutUint32(block[20:], h.events)
	le.PutUint64(block[24:], h.earliest)
	le.PutUint64(block[32:], h.latest)
	le.PutUint32(block[4:], crc32.Checksum(block[8:], castagnoli))
}

// get reads a head.
func (h *head) get(b []byte) {
	le := binary.LittleEndian
	h.kind, h.flags = b[8], b[9]
	h.packed, h.raw, h.events = le.Uint32(b[12:]), le.Uint32(b[16:]), le.Uint32(b[20:])
	h.earliest, h.latest = le.Uint64(b[24:]), le.Uint64(b[32:])
	h.checksum = le.Uint32(b[4:])
}

// size returns the length of the block.
func (h *head) size() int64 { return blockHead + int64(h.packed) }
