// Package recording stores events in a compact binary form: in one file, in a series of files or
// on a stream. Even if its writer was killed, a recording is readable up to the last written
// block.
//
// docs/recordings.md describes the format byte for byte.
package recording

import (
	"hash/crc32"

	"ttmem/tracer/codec"
)

// Format is the only version of the format that this package writes and reads.
const Format = 5

// magic begins a recording. No text contains its first byte; a transfer that changes line ends
// changes its last two.
const magic = "\x93TTMEM\r\n"

// mark begins a block.
const mark = "TTMb"

// End has the facts that only the tracer knows at the end of a recording.
type End struct {
	// TimeNs is the CLOCK_MONOTONIC time at which recording ended; 0 if unknown.
	TimeNs uint64
	// HasStacks reports whether stacks were taken; the next fields count them.
	HasStacks bool
	// Taken is the number of stacks. Incomplete is the number of stacks that do not reach the
	// thread's start, by cause.
	Taken      uint64
	Incomplete map[string]uint64
	// Python is the number of stacks with Python frames. IncompletePython is the number of those
	// that do not reach the outermost Python frame, by cause.
	Python           uint64
	IncompletePython map[string]uint64
	// Continued marks the end of a file that another one continues. Such a file sets no other
	// field.
	Continued bool
}

// values writes or reads the end mark.
func (e *End) values(c *codec.Codec) {
	c.Bool(&e.HasStacks)
	c.Bool(&e.Continued)
	c.Uint(&e.TimeNs)
	if !e.HasStacks {
		return
	}
	c.Uints(&e.Taken, &e.Python)
	for _, counts := range [...]*map[string]uint64{&e.Incomplete, &e.IncompletePython} {
		if c.Reads {
			*counts = make(map[string]uint64)
		}
		codec.Table(c, *counts, func(cause *string, n *uint64) {
			c.Text(cause)
			c.Uint(n)
		})
	}
}

// Limits of the format, which bound a reader's memory. A writer resets a full table.
const (
	// maxRaw is the maximum length of a block's payload before compression.
	maxRaw = 8 << 20
	// maxExpansion is the most bytes of payload for each byte of a block. Blocks of real programs have
	// 3. A writer pads a block that would have more, so that the length of a file bounds what reading it
	// costs.
	maxExpansion = 32
	// maxBlockRefs is the most frames of new stacks for each byte of a block: a stack may repeat most
	// of the one before it, and a few bytes repeat a name. Blocks with a new stack in each event have 5. An
	// inlined frame counts as inlinedRefs, because it is not shared, and refText bytes of text as a frame,
	// because views write the text of each stack.
	maxBlockRefs = 32
	inlinedRefs  = 16
	refText      = 256
	// maxString is the maximum length of a string; longer ones are truncated. No symbol that a tracer
	// reads is longer.
	maxString = 32 << 10
	// maxList is the maximum number of devices or core ranges of an event; longer lists
	// are truncated.
	maxList = 4096
	// maxUsed is the maximum number of addresses in each list of Uses; longer ones are truncated. All runs
	// of a program share these, so that few bytes repeat them. A tracer finds at most 24 for a run.
	maxUsed = 64
	// maxNewText is the maximum length of the strings that a block defines; further ones are
	// left empty. It keeps a block below maxRaw.
	maxNewText = 4 << 20
	// maxStackFrames is the maximum number of frames of a stack; outer ones of deeper stacks
	// are dropped.
	maxStackFrames = 2048

	// Limits of the definitions between two resets.
	maxStrings     = 1 << 20
	maxStringBytes = 64 << 20
	maxFrames      = 1 << 19
	maxStacks      = 1 << 20
	maxFrameRefs   = 1 << 25

	// Limits of a checkpoint.
	maxStateBytes  = 1 << 28
	maxStateStacks = 1 << 20

	// maxCalls is the number of calls that a writer remembers, which takes 10 MiB.
	maxCalls = 1 << 14

	// maxShapes is the number of shapes of a block between two resets.
	maxShapes = 4096
	// maxUses is the number of different uses of programs in a block between two resets.
	maxUses = 1 << 14
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
