package recording

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/tracer/event"
)

// seal makes the lengths and checksums of a recording right where it can, so that
// the fuzzer gets beyond them.
func seal(b []byte) []byte {
	le := binary.LittleEndian
	b = bytes.Clone(b)
	if len(b) < headerSize {
		return b
	}
	copy(b, magic)
	le.PutUint16(b[len(magic):], Format)
	n := min(int(le.Uint16(b[len(magic)+2:])), len(b)-headerSize)
	le.PutUint16(b[len(magic)+2:], uint16(n))
	le.PutUint32(b[len(magic)+4:], crc32.Checksum(b[headerSize:headerSize+n], castagnoli))
	for at := headerSize + n; len(b)-at >= blockHead; {
		block := b[at:]
		copy(block, mark)
		n := min(int(le.Uint32(block[12:])), len(block)-blockHead)
		le.PutUint32(block[12:], uint32(n))
		if block[9]&blockPlain != 0 {
			le.PutUint32(block[16:], uint32(n))
		}
		le.PutUint32(block[4:], crc32.Checksum(block[8:blockHead+n], castagnoli))
		at += blockHead + n
	}
	return b
}

// plain is a recording whose blocks are not compressed: what the fuzzer changes
// in it changes what is read.
func plain(t testing.TB, recorded []byte) []byte {
	t.Helper()
	in := bytes.NewReader(recorded)
	r, err := NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	first := r.Offset()
	out, moved := bytes.Clone(recorded[:first]), make(map[uint64]uint64)
	for at, h := range blockHeads(in, first, int64(len(recorded))) {
		moved[uint64(at)] = uint64(len(out))
		payload := recorded[at+int64(blockHead):][:h.packed]
		if h.flags&blockPlain == 0 {
			if payload, err = r.zstd.DecodeAll(payload, make([]byte, 0, h.raw)); err != nil {
				t.Fatal(err)
			}
		}
		h.flags, h.packed = h.flags|blockPlain, h.raw
		if h.kind == blockState {
			h.earliest = moved[h.earliest]
		}
		b := append(make([]byte, blockHead), payload...)
		h.put(b)
		out = append(out, b...)
	}
	return out
}

// sample are the events of testdata/format.ttmem.
func sample() []event.Event {
	return append(model(30, newStacks(3)), event.Event{
		Kind: event.ProcessStart, Start: &event.Start{Command: "python model.py", Library: "/lib/libtt_metal.so"}, UID: 7,
	}, event.Event{
		Kind: event.CBAlloc, Cores: []event.CoreRange{{X1: 7, Y1: 7}}, ProgramID: 5, Address: 99,
	}, event.Event{
		Kind: event.DeviceOpen, Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{{Banks: 12, BytesPerBank: 1 << 30}}},
	})
}

var update = flag.Bool("update", false, "write testdata/format.ttmem anew")

// TestTheFormatStaysTheSame: a change of the format counts up Format, and writes this file
// anew.
func TestTheFormatStaysTheSame(t *testing.T) {
	path := filepath.Join("testdata", "format.ttmem")
	if *update {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, write(t, sample(), 3, 20), 0o644)))
	}
	events, _, r := readFile(t, path)
	equal(t, events, sample())
	qt.Assert(t, qt.DeepEquals(r.Header(), fixed))
	_, ended := r.End()
	qt.Assert(t, qt.IsTrue(ended))
}

// FuzzReader looks for input on which the reader panics, hangs or gives more than
// the input can have.
func FuzzReader(f *testing.F) {
	recorded := write(f, sample(), 3, 20)
	f.Add(recorded)
	f.Add(plain(f, recorded))
	f.Add(recorded[:len(recorded)/2])
	long, _ := withSections(f, model(300, newStacks(3)), 100)
	f.Add(long)
	f.Add(plain(f, long))
	owners := write(f, withOwners(model(30, newStacks(3)), 10))
	f.Add(owners)
	f.Add(plain(f, owners))
	f.Fuzz(func(t *testing.T, input []byte) {
		for i, b := range [][]byte{input, seal(input), input, seal(input)} {
			fuzztest.Bounded(t, len(b), allocatedPerByte, func() { readHostile(t, b, i >= 2) })
		}
	})
}

// allocatedPerByte is the most that reading takes for a byte of a recording. A byte of payload is a
// shape's, which takes 25 times as much, or a frame's, and one of a block has maxBlockRefs frames.
const allocatedPerByte = 4 * (64*maxExpansion + 64*maxBlockRefs)

// readHostile reads a recording to its end, or from its last checkpoint on.
func readHostile(t *testing.T, b []byte, goOn bool) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return
	}
	if goOn {
		if _, err := goOnBefore(r, b, math.MaxUint64); err != nil {
			t.Fatal(err)
		}
	}
	_, blocks := findBlocks(bytes.NewReader(b), r.offset, int64(len(b)))
	_ = readOwners(bytes.NewReader(b), "x", blocks, 0, func(*event.Event) {})
	var e event.Event
	for n := 0; ; n++ {
		if err := r.Next(&e); err != nil {
			if again := r.Next(&e); again == nil {
				t.Fatalf("an event after %v", err)
			}
			break
		}
		if n > 2*maxExpansion*len(b) { // an event has a byte at the least, and owners are read twice
			t.Fatalf("%d events in %d bytes", n, len(b))
		}
		_ = e.Stack.Frames()
	}
	of := r.rows.dictionary
	if n, bytes := of.c.Texts(); n > maxStrings || bytes > maxStringBytes ||
		len(of.frames) > maxFrames || len(of.stacks) > maxStacks || of.refs > maxFrameRefs+maxStackFrames {
		t.Fatal("more definitions than a file may have")
	}
}

func TestPlainBlocksAreRead(t *testing.T) {
	events := model(60, newStacks(4))
	equal(t, read(t, plain(t, write(t, events, 20, 21))), events)
}
