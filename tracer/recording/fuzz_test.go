package recording

import (
	"bytes"
	"encoding/binary"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

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
	ends, counts := blocksOf(t, recorded)
	out := bytes.Clone(recorded[:ends[0]])
	r, err := NewReader(bytes.NewReader(recorded))
	if err != nil {
		t.Fatal(err)
	}
	for i := 1; i < len(ends); i++ {
		var h head
		h.get(recorded[ends[i-1]:])
		payload := recorded[ends[i-1]+blockHead : ends[i]]
		if h.flags&blockPlain == 0 {
			if payload, err = r.zstd.DecodeAll(payload, make([]byte, 0, h.raw)); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, block(h.kind, h.flags|blockPlain, uint32(counts[i]-counts[i-1]), payload, len(payload))...)
	}
	return out
}

// format1 are the events of testdata/format1.ttmem.
func format1() []event.Event {
	return append(model(30, newStacks(3)), event.Event{
		Kind: event.ProcessStart, Command: "python model.py", Library: "/lib/libtt_metal.so", UID: 7,
	}, event.Event{
		Kind: event.CBAlloc, Cores: []event.CoreRange{{X1: 7, Y1: 7}}, ProgramID: 5, Address: 99,
	}, event.Event{
		Kind: event.DeviceOpen, Capacities: [event.BankedRegions]event.Capacity{{Banks: 12, BytesPerBank: 1 << 30}},
	})
}

var update = flag.Bool("update", false, "write testdata/format1.ttmem anew")

// A recording that was written once can be read for ever: who changes the format
// counts up Format and reads both.
func TestAnOldRecordingIsRead(t *testing.T) {
	path := filepath.Join("testdata", "format1.ttmem")
	if *update {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, write(t, format1(), 3, 20), 0o644)))
	}
	events, _, r := readFile(t, path)
	equal(t, events, format1())
	qt.Assert(t, qt.DeepEquals(r.Header(), fixed))
	_, ended := r.End()
	qt.Assert(t, qt.IsTrue(ended))
}

// FuzzReader looks for input on which the reader panics, hangs or gives more than
// the input can have.
func FuzzReader(f *testing.F) {
	recorded := write(f, format1(), 3, 20)
	f.Add(recorded)
	f.Add(plain(f, recorded))
	f.Add(recorded[:len(recorded)/2])
	long, _ := withSections(f, model(300, newStacks(3)), 100)
	f.Add(long)
	f.Add(plain(f, long))
	f.Fuzz(func(t *testing.T, input []byte) {
		for i, b := range [][]byte{input, seal(input), input, seal(input)} {
			r, err := NewReader(bytes.NewReader(b))
			if err != nil {
				continue
			}
			if i >= 2 {
				if _, err := r.last(bytes.NewReader(b), int64(len(b))); err != nil {
					t.Fatal(err)
				}
			}
			var e event.Event
			for n := 0; ; n++ {
				if err := r.Next(&e); err != nil {
					if again := r.Next(&e); again == nil {
						t.Fatalf("an event after %v", err)
					}
					break
				}
				// zstd makes of a byte 32 KiB at the most; an event has one at the least
				if n > len(b)<<15 {
					t.Fatalf("%d events in %d bytes", n, len(b))
				}
				_ = e.Stack.Frames()
			}
			if of := r.rows.of; len(of.strings) > maxStrings || of.textBytes > maxStringBytes ||
				len(of.frames) > maxFrames || len(of.stacks) > maxStacks || len(of.refs) > maxFrameRefs {
				t.Fatal("more definitions than a file may have")
			}
		}
	})
}

func TestPlainBlocksAreRead(t *testing.T) {
	events := model(60, newStacks(4))
	equal(t, read(t, plain(t, write(t, events, 20, 21))), events)
}
