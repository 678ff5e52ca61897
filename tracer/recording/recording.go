// Package recording keeps events in a compact binary form: in files, one or
// several that follow each other, and on streams. A recording can be read up to
// the last block that was written, whatever became of its writer.
//
// docs/recordings.md has the format byte for byte.
package recording

import "hash/crc32"

// Format is the version of the format that this package writes, and the only one
// that it reads.
const Format = 2

// magic begins a recording: no text has its first byte, and a transfer that
// changes the ends of lines breaks the last two.
const magic = "\x93TTMEM\r\n"

// mark begins a block.
const mark = "TTMb"

// End is what only the tracer knows at the end of a recording.
type End struct {
	// TimeNs is when recording ended, CLOCK_MONOTONIC; 0 where it is not known.
	TimeNs uint64
	// HasStacks says whether stacks were taken: what follows counts them.
	HasStacks bool
	// Taken is how many stacks were taken, and Incomplete how many of them do not
	// reach the thread's start, by cause.
	Taken      uint64
	Incomplete map[string]uint64
	// Python is how many of the threads ran Python, and IncompletePython how many
	// of those stacks do not reach Python's outermost frame, by cause.
	Python           uint64
	IncompletePython map[string]uint64
	// Continued marks the end of a file that another one follows. File sets it,
	// and nothing else then.
	Continued bool
}

// The limits of the format. A reader need not hold more than they allow, and a
// writer keeps them: a table that is full begins anew.
const (
	// maxRaw is the length of a block's payload before compression.
	maxRaw = 8 << 20
	// maxString is the length of a string: longer ones are cut.
	maxString = 256 << 10
	// maxList is the number of devices or of core ranges of an event: longer lists
	// are cut.
	maxList = 4096
	// maxNewText is the length of the strings that a block defines: what one more
	// event brings beyond it is left empty. A block stays below maxRaw so.
	maxNewText = 4 << 20
	// maxStackFrames is the number of frames of a stack: the outermost ones of
	// deeper stacks are cut.
	maxStackFrames = 2048

	// What the definitions of a file may be together, up to where they begin anew.
	maxStrings     = 1 << 20
	maxStringBytes = 64 << 20
	maxFrames      = 1 << 19
	maxStacks      = 1 << 20
	maxFrameRefs   = 1 << 25

	// What a checkpoint may have.
	maxStateBytes  = 1 << 30
	maxStateStacks = 1 << 24

	// maxShapes is the number of shapes of a block, up to where they begin anew.
	maxShapes = 4096
)

// The sections of a block's payload.
const (
	sectionStrings = 1 + iota
	sectionFrames
	sectionStacks
	sectionShape
	sectionTime
	sectionObject
	sectionBuffer
	sectionAddress
	sectionSize
	sectionProgram
	sectionStack
	sectionExtra
	sectionModules
	sectionState
	numSections
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
