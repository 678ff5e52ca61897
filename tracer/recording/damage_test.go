package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// blocksOf are where the blocks of a recording end, with the number of events up
// to there; the header is the first.
func blocksOf(t testing.TB, recorded []byte) (ends []int, events []int) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(recorded))
	qt.Assert(t, qt.IsNil(err))
	ends, events = []int{int(r.Offset())}, []int{0}
	n := 0
	for {
		var e event.Event
		if err := r.Next(&e); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
		if at := int(r.Offset()); at != ends[len(ends)-1] {
			ends, events = append(ends, at), append(events, 0)
		}
		events[len(events)-1] = n
	}
	if _, ended := r.End(); ended {
		ends, events = append(ends, int(r.Offset())), append(events, n)
	}
	qt.Assert(t, qt.Equals(ends[len(ends)-1], len(recorded)))
	return ends, events
}

// checkCut reads a recording that was cut.
func checkCut(t *testing.T, recorded []byte, at int, ends, counts []int, want []event.Event) {
	t.Helper()
	r, err := NewReader(bytes.NewReader(recorded[:at]))
	var truncated *TruncatedError
	if at < ends[0] {
		if at == 0 {
			qt.Assert(t, qt.ErrorMatches(err, "the stream is empty.*"))
			return
		}
		qt.Assert(t, qt.IsTrue(errors.As(err, &truncated)), qt.Commentf("cut at %d: %v", at, err))
		return
	}
	qt.Assert(t, qt.IsNil(err), qt.Commentf("cut at %d", at))
	block := 0
	for block+1 < len(ends) && ends[block+1] <= at {
		block++
	}
	got, err := readAll(r)
	qt.Assert(t, qt.Equals(len(got), counts[block]), qt.Commentf("cut at %d", at))
	if ends[block] == at {
		qt.Assert(t, qt.IsNil(err), qt.Commentf("cut at %d", at))
	} else {
		qt.Assert(t, qt.IsTrue(errors.As(err, &truncated)), qt.Commentf("cut at %d: %v", at, err))
		qt.Assert(t, qt.Equals(truncated.Offset, int64(ends[block])))
		qt.Assert(t, qt.ErrorIs(err, io.ErrUnexpectedEOF))
	}
	var e event.Event
	again := r.Next(&e)
	qt.Assert(t, qt.IsNotNil(again), qt.Commentf("reading goes on after the end"))
	_, ended := r.End()
	qt.Assert(t, qt.Equals(ended, at == len(recorded)))
	if len(got) > 0 {
		last := len(got) - 1
		equal(t, got[last:], want[last:len(got)])
	}
}

func TestReadableUpToTheLastWholeBlockWhereverItIsCut(t *testing.T) {
	events := model(60, newStacks(4))
	recorded := write(t, events, 0, 20, 21, 45)
	ends, counts := blocksOf(t, recorded)
	qt.Assert(t, qt.DeepEquals(counts, []int{0, 1, 21, 22, 46, 60, 60}))
	for at := range len(recorded) + 1 {
		checkCut(t, recorded, at, ends, counts, events)
	}
}

func TestALargeRecordingThatIsCut(t *testing.T) {
	events := model(50_000, newStacks(300))
	recorded := write(t, events, 10, 1000, 12_000, 30_000, 45_000)
	ends, counts := blocksOf(t, recorded)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 40 {
		checkCut(t, recorded, rng.IntN(len(recorded)), ends, counts, events)
	}
}

func TestAChangedByteIsFound(t *testing.T) {
	events := model(60, newStacks(4))
	recorded := write(t, events, 20, 40)
	ends, counts := blocksOf(t, recorded)
	for at := range recorded {
		changed := bytes.Clone(recorded)
		changed[at] ^= 0x10
		r, err := NewReader(bytes.NewReader(changed))
		if at < ends[0] {
			qt.Assert(t, qt.IsNotNil(err), qt.Commentf("byte %d", at))
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		block := 0
		for ends[block+1] <= at {
			block++
		}
		got, err := readAll(r)
		qt.Assert(t, qt.Equals(len(got), counts[block]), qt.Commentf("byte %d", at))
		var damaged *DamagedError
		var truncated *TruncatedError
		// The length may say more than there is.
		if !errors.As(err, &truncated) {
			qt.Assert(t, qt.IsTrue(errors.As(err, &damaged)), qt.Commentf("byte %d: %v", at, err))
			qt.Assert(t, qt.Equals(damaged.Offset, int64(ends[block])))
		}
		equal(t, got, events[:counts[block]])
	}
}

func TestGarbageAfterTheLastBlock(t *testing.T) {
	events := model(60, newStacks(4))
	var b bytes.Buffer
	w, err := NewWriter(&b, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		w.Add(&events[i])
	}
	qt.Assert(t, qt.IsNil(w.Flush()))
	for _, garbage := range []string{"x", "a whole lot of text that is longer than the head of a block", string(make([]byte, 4096)), magic} {
		r, err := NewReader(io.MultiReader(bytes.NewReader(b.Bytes()), bytes.NewReader([]byte(garbage))))
		qt.Assert(t, qt.IsNil(err))
		got, err := readAll(r)
		equal(t, got, events)
		var damaged *DamagedError
		qt.Assert(t, qt.IsTrue(errors.As(err, &damaged)))
		qt.Assert(t, qt.Equals(damaged.Offset, int64(b.Len())))
		qt.Assert(t, qt.ErrorMatches(err, `the stream is damaged at byte \d+ \(no block begins here\): earlier events were read, later ones are lost`))
	}
}

func TestWhatIsNoRecordingIsSaidInOneLine(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.WriteFile(path, content, 0o644)))
		return path
	}
	good := write(t, model(10, newStacks(1)))
	older, newer := bytes.Clone(good), bytes.Clone(good)
	older[len(magic)], newer[len(magic)] = Format-1, Format+1
	for _, c := range []struct {
		path, want string
		recording  bool
	}{
		{file("good", good), "", true},
		{file("text", []byte("{}")), "FILE is not a ttmem recording: `ttmem run -o FILE -- COMMAND` makes one", false},
		{file("long", bytes.Repeat([]byte("text"), 100)), "FILE is not a ttmem recording: `ttmem run -o FILE -- COMMAND` makes one", false},
		{file("x.gz", []byte("\x1f\x8b\x08")), "FILE is compressed: `gunzip -k FILE` first", false},
		{file("older", older), `FILE was made by an older ttmem \(format 4\): record it again`, true},
		{file("newer", newer), `FILE was made by a newer ttmem \(format 6; this one reads 5\): install a newer one`, true},
		{file("empty", nil), "FILE is empty: nothing was recorded; record again", false},
		{file("short", good[:20]), "FILE is cut short at byte 0: earlier events were read", true},
		{dir, "FILE is a directory; name a recording in it", false},
		{filepath.Join(dir, "none"), "there is no recording FILE: file does not exist", false},
	} {
		r, err := Open(c.path)
		qt.Assert(t, qt.Equals(IsRecording(c.path), c.recording), qt.Commentf(c.path))
		if c.want == "" {
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(r.Size(), int64(len(good))))
			events, err := readAll(r.Reader)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(len(events), 10))
			qt.Assert(t, qt.Equals(r.Offset(), r.Size()))
			qt.Assert(t, qt.IsNil(r.Close()))
			continue
		}
		qt.Assert(t, qt.IsNotNil(err), qt.Commentf(c.path))
		got := string(bytes.ReplaceAll([]byte(err.Error()), []byte(c.path), []byte("FILE")))
		qt.Assert(t, qt.Matches(got, c.want))
	}
}

// block is one with a right checksum, whatever else it has.
func block(kind, flags byte, events uint32, raw []byte, claimed int) []byte {
	b := append(make([]byte, blockHead), raw...)
	h := head{kind: kind, flags: flags, packed: uint32(len(raw)), raw: uint32(claimed), events: events}
	h.put(b)
	return b
}

func TestWhatANewerWriterAddsIsPassedOver(t *testing.T) {
	// a kind of block that this reader does not know
	event1 := model(1, newStacks(1))
	event1[0].Stack = nil
	event1[0].Message = "hello"
	recorded := write(t, event1)
	ends, _ := blocksOf(t, recorded)
	head, data, end := recorded[:ends[0]], recorded[ends[0]:ends[1]], recorded[ends[1]:]
	with := bytes.Join([][]byte{
		head, block('x', blockPlain, 0, []byte("for others"), 10),
		data, end,
	}, nil)
	equal(t, read(t, with), event1)

	with = append(bytes.Clone(head), block('X', blockPlain, 0, []byte("important"), 9)...)
	r, err := NewReader(bytes.NewReader(with))
	qt.Assert(t, qt.IsNil(err))
	_, err = readAll(r)
	qt.Assert(t, qt.ErrorMatches(err, ".*a newer ttmem can read it.*"))

	for _, e := range []event.Event{{Kind: 200}, {Kind: event.Alloc, Region: 200}} {
		r, err = NewReader(bytes.NewReader(writtenByANewer(t, event1[0], e)))
		qt.Assert(t, qt.IsNil(err))
		got, err := readAll(r)
		equal(t, got, event1)
		qt.Assert(t, qt.ErrorMatches(err, ".*a newer ttmem can read it.*"))
		// this one's writer makes no such file
		equal(t, read(t, write(t, []event.Event{e, event1[0]})), event1)
	}
}

// writtenByANewer records events as a writer does that knows all of them: this
// one's Add leaves out what it does not know.
func writtenByANewer(t *testing.T, events ...event.Event) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	for i := range events {
		w.rows.row(&events[i])
		w.next.events++
	}
	qt.Assert(t, qt.IsNil(w.Close(End{})))
	return b.Bytes()
}

// shapeWith is an event of a new shape with a comm and devices.
func shapeWith(comm, devices string) []byte {
	b := "\x02\x00\x00\x00\x00\x00\x00" + "\x00" + "\x00\x02\x00\x00\x00\x00\x00\x00" + comm + "\x00\x00\x00\x00\x00" + devices
	return append([]byte(b), make([]byte, 40-len(b))...)
}

func TestLengthsAreBoundedBeforeAnythingIsAllocated(t *testing.T) {
	header := write(t, nil)
	ends, _ := blocksOf(t, header)
	header = header[:ends[0]]
	w, err := NewWriter(io.Discard, NewHeader())
	qt.Assert(t, qt.IsNil(err))
	bomb := w.zstd.EncodeAll(make([]byte, 200<<20), nil)
	fix := func(b []byte) []byte {
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:], castagnoli))
		return b
	}
	long := block(blockEvents, blockPlain, 1, []byte("x"), 1)
	binary.LittleEndian.PutUint32(long[12:], 1<<31)
	binary.LittleEndian.PutUint32(long[16:], 1<<31)
	for name, b := range map[string][]byte{
		"length of the payload":      fix(long),
		"length before compression":  block(blockEvents, 0, 1, bomb, 1<<31),
		"more than the head says":    block(blockEvents, 0, 1, bomb, 1000),
		"more than any block":        block(blockEvents, 0, 1, bomb, maxRaw),
		"events":                     block(blockEvents, blockPlain, 1<<31, []byte("x"), 1),
		"a column":                   block(blockEvents, blockPlain, 1, []byte("\xff\xff\xff\xff\x0f"), 5),
		"a string":                   block(blockEvents, blockPlain, 1, shapeWith("\x01\xff\xff\xff\xff\x0f", ""), 40),
		"a list":                     block(blockEvents, blockPlain, 1, shapeWith("\x00", "\x01\xff\xff\xff\xff\x0f"), 40),
		"a stack of too many frames": block(blockState, blockPlain, 0, []byte("\x01\x00\x00\x00\xff\xff\x7f"), 7),
		"a stack as long as another": block(blockState, blockPlain, 0, []byte("\x01\x00\xff\xff\x7f\x00"), 6),
	} {
		t.Run(name, func(t *testing.T) {
			recorded := append(bytes.Clone(header), b...)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			r, err := NewReader(bytes.NewReader(recorded))
			qt.Assert(t, qt.IsNil(err))
			_, err = readAll(r)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			var damaged *DamagedError
			qt.Assert(t, qt.IsTrue(errors.As(err, &damaged)), qt.Commentf("%v", err))
			qt.Assert(t, qt.IsTrue(allocated < 4*maxRaw), qt.Commentf("%d bytes", allocated))
		})
	}
}
