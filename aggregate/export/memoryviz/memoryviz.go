// Package memoryviz exports buffers as a memory snapshot for PyTorch's viewer
// (https://docs.pytorch.org/memory_viz) and for torch/cuda/_memory_viz.py.
//
// The viewer knows devices, each with segments of one address space, and numbers them. A region of
// a chip is a device here. It has a segment with the region's capacity, in which addresses are
// those of a bank times the number of banks, so that sizes are those in all banks. A second
// segment has the buffers that have no place of their own in the first one: those on
// single cores, and those at an address that another process's buffer has.
//
// The events are kept in a temporary file, as the snapshot has them by device. Besides it, memory
// is needed for live buffers and for call stacks.
package memoryviz

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
	files "ttmem/tracer/place"
)

// The viewer calculates with floating-point numbers, which are exact below 1<<53.
const (
	// elsewhere is the beginning of the second segment.
	elsewhere = 1 << 52
	// maxSize is more than a chip has. A buffer that claims more is shown with this size.
	maxSize = 1 << 40
)

// keys are the strings of all events. Their places are their numbers in the pickle's memo.
var keys = []string{
	"action", "addr", "size", "stream", "time_us", "frames", "user_metadata", "device_free",
	"alloc", "free_requested", "free_completed", "oom", "filename", "line", "name",
}

const (
	keyAction = iota
	keyAddr
	keySize
	keyStream
	keyTime
	keyFrames
	keyMetadata
	keyFree
	actionAlloc
	actionFreeRequested
	actionFreeCompleted
	actionOOM
	keyFile
	keyLine
	keyName
)

// A Writer makes a snapshot of events.
type Writer struct {
	out   *bufio.Writer
	wall  func(ns uint64) int64
	spool *os.File // has no name
	size  int64    // of the spool
	err   error    // the first one: after it nothing is written

	devices map[place]*device
	live    map[key]*block
	// next is the address of the next buffer in a second segment.
	next   uint64
	memo   int            // the next number in the memo
	stacks map[uint64]int // by id: numbers in the memo
	// classes are those of the call stacks.
	classes name.Classes
	frames  pickle // of the stacks
	// texts are those of the buffers, which are written when a buffer ends: its owner may be found
	// late. They come before the events of all devices.
	texts spooled
}

type key struct {
	pid int
	id  uint64
}

// New returns a Writer of a snapshot, which Close writes to out. wall returns a time of
// CLOCK_MONOTONIC by the wall clock, in ns since 1970; 0 if not known.
func New(out io.Writer, wall func(ns uint64) int64) (*Writer, error) {
	spool, err := files.Temporary("ttmem-memory-viz-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(spool.Name()); err != nil {
		spool.Close()
		return nil, err
	}
	return &Writer{
		out: bufio.NewWriter(out), wall: wall, spool: spool, next: elsewhere,
		devices: make(map[place]*device), live: make(map[key]*block), stacks: make(map[uint64]int), memo: len(keys),
	}, nil
}

// Event adds an event, after the State has applied it. State.Completed calls it with all that is
// needed.
func (w *Writer) Event(e *event.Event, s *aggregate.State) {
	switch e.Kind {
	case event.Checkpoint:
		w.addExisting(s)
	case event.DeviceOpen:
		for _, chip := range e.Devices {
			for region := range event.Region(event.BankedRegions) {
				w.device(place{chip, region}, 0).grow(e.Opened().Capacities[region])
			}
		}
	case event.Alloc:
		if b := s.Buffer(e.PID, e.BufferID); b != nil {
			w.alloc(b, e.TimeNs)
		}
	case event.Free:
		by := e.Stack
		if e.Reason.IsEnd() {
			by = nil
		}
		w.free(key{e.PID, e.BufferID}, by, e.TimeNs)
	case event.AllocFailed:
		w.fail(e)
	case event.Owner:
		if b := w.live[key{e.PID, e.BufferID}]; b != nil && e.Cause != "" { // else nobody holds it any more
			b.owner = memory.Owner{Path: e.Cause, Tensor: e.Message}
		}
	}
}

// addExisting adds what is live before the first event.
func (w *Writer) addExisting(s *aggregate.State) {
	of := s.Snapshot()
	for i := range of.Devices {
		for region := range event.Region(event.BankedRegions) {
			r := of.Devices[i].Regions.Banked(region)
			w.device(place{of.Devices[i].ID, region}, 0).grow(event.Capacity{Banks: r.Banks, BytesPerBank: r.CapacityBytesPerBank})
		}
	}
	for _, b := range s.Buffers() {
		w.alloc(&b, b.SinceNs)
	}
}

// device returns the device of a place, whose buffers have that many banks.
func (w *Writer) device(at place, banks uint32) *device {
	d := w.devices[at]
	if d == nil {
		d = &device{place: at, taken: make(map[uint64]bool)}
		w.devices[at] = d
	}
	if d.banks == 0 {
		d.banks = uint64(banks)
	}
	return d
}

func (w *Writer) alloc(from *memory.Buffer, now uint64) {
	id := key{from.PID, from.BufferID}
	w.free(id, nil, now) // if the event of its end was lost
	chips := from.Devices
	if len(chips) == 0 {
		chips = []int{memory.NoDevice}
	}
	b := &block{
		size: min(from.AllocatedBytes(), maxSize), stack: w.stack(from.Stack),
		pid: from.PID, buffer: from.BufferID, perBank: from.Address, from: from.Stack, owner: from.Owner, memo: w.memo,
	}
	w.memo += len(chips)
	b.requested = min(from.SizeBytes, b.size)
	free := !from.PerCore
	for _, chip := range chips {
		d := w.device(place{chip, from.Region}, uint32(from.Banks))
		b.devices = append(b.devices, d)
		b.address = from.Address * max(d.banks, 1)
		free = free && !d.taken[b.address]
	}
	if !free || from.Address >= maxSize || b.end() >= elsewhere {
		b.address = w.next
		w.next += max(b.size, 1)
	}
	w.live[id] = b
	for i, d := range b.devices {
		d.taken[b.address] = true
		d.segment(b).include(b.address, b.end())
		d.used += b.size
		p := w.event(d, actionAlloc, b, now)
		p.get(keyMetadata)
		p.get(b.memo + i)
		p.op(opSetItems)
	}
}

// describe writes the texts of a buffer.
func (w *Writer) describe(b *block) {
	what, held := "buffer", ""
	if class := w.classes.Of(b.from, b.devices[0].region, b.owner.Path, b.owner.Tensor); class.Mention() != "" {
		what = class.Noun
	}
	if b.owner.Path != "" {
		held = strings.TrimSuffix(", held by "+b.owner.Path+" · "+b.owner.Tensor, " · ")
	}
	for i, d := range b.devices {
		p := w.item(&w.texts)
		p.text(event.Printable(fmt.Sprintf("%s, PID %d, %s %d at %#x of each bank%s", d.place, b.pid, what, b.buffer, b.perBank, held)))
		p.put(b.memo + i)
	}
}

// free ends a buffer; by is the call stack of that, or nil if it is not known.
func (w *Writer) free(id key, by *event.Stack, now uint64) {
	b := w.live[id]
	if b == nil {
		return
	}
	delete(w.live, id)
	w.describe(b)
	if by != nil {
		b.stack = w.stack(by)
	}
	for _, d := range b.devices {
		delete(d.taken, b.address)
		d.used -= b.size
		w.event(d, actionFreeRequested, b, now).op(opSetItems)
		w.event(d, actionFreeCompleted, b, now).op(opSetItems)
	}
}

// fail adds a failed allocation. Circular buffers that overlap a tensor belong to L1.
func (w *Writer) fail(e *event.Event) {
	region := e.Region
	if int(region) >= event.BankedRegions {
		region = event.L1
	}
	for _, chip := range e.Devices {
		d := w.device(place{chip, region}, e.Banks)
		size := e.BytesPerBank * max(d.banks, uint64(e.Banks))
		if e.Region == event.CB {
			size = e.SizeBytes
		}
		w.event(d, actionOOM, &block{size: min(size, maxSize), stack: w.stack(e.Stack)}, e.TimeNs).op(opSetItems)
	}
}

// item returns the pickle for the next item of a list.
func (w *Writer) item(s *spooled) *pickle {
	if s.items%batch == 0 {
		w.flush(s)
		s.begun.op(opMark)
	}
	s.items++
	return &s.begun
}

// event begins an event of a device. The caller ends its items.
func (w *Writer) event(d *device, action int, b *block, now uint64) *pickle {
	p := w.item(&d.spooled)
	p.op(opEmptyDict, opMark)
	p.get(keyAction)
	p.get(action)
	if action == actionOOM {
		p.get(keyFree)
		p.number(d.capacity.Total() - min(d.used, d.capacity.Total()))
	} else {
		p.get(keyAddr)
		p.number(b.address)
	}
	p.get(keySize)
	p.number(b.size)
	p.get(keyStream)
	p.number(0)
	p.get(keyTime)
	p.number(uint64(max(w.wall(now), 0)) / 1000)
	p.get(keyFrames)
	p.get(b.stack)
	return p
}

// flush writes the begun batch of a list to the spool.
func (w *Writer) flush(s *spooled) {
	if len(s.begun) == 0 || w.err != nil {
		return
	}
	s.begun.op(opAppends)
	_, w.err = w.spool.Write(s.begun)
	s.parts = append(s.parts, part{w.size, len(s.begun)})
	w.size += int64(len(s.begun))
	s.begun = s.begun[:0]
}

// stack returns the number of a call stack in the memo.
func (w *Writer) stack(s *event.Stack) int {
	id := memory.StackID(s)
	memo, ok := w.stacks[id]
	if ok {
		return memo
	}
	memo = w.memo
	w.memo++
	w.stacks[id] = memo
	frames := s.Frames()
	w.frames.op(opMark)
	w.frames.list(len(frames), func(i int) {
		f := &frames[i]
		w.frames.op(opEmptyDict, opMark)
		w.frames.get(keyFile)
		w.frames.text(event.Printable(cmp.Or(f.File, f.Module)))
		w.frames.get(keyLine)
		w.frames.number(uint64(max(f.Line, 0)))
		w.frames.get(keyName)
		w.frames.text(event.Printable(cmp.Or(f.Name, fmt.Sprintf("%#x", f.Address))))
		w.frames.op(opSetItems)
	})
	w.frames.put(memo)
	w.frames.op(opAppends)
	return memo
}

// Close writes the snapshot.
func (w *Writer) Close() error {
	defer w.spool.Close()
	devices := w.result()
	var p pickle
	p.op(opProto, protocol, opEmptyDict, opMark)
	p.text("ttmem_devices")
	p.list(len(devices), func(i int) { p.text(devices[i].String()) })
	p.text("ttmem_keys")
	p.list(len(keys), func(i int) {
		p.text(keys[i])
		p.put(i)
	})
	p.text("ttmem_stacks")
	p.op(opEmptyList)
	w.write(p)
	w.write(w.frames)
	p = p[:0]
	p.text("ttmem_texts")
	w.write(p)
	w.copy(&w.texts)
	p = p[:0]
	p.text("device_traces")
	p.op(opEmptyList, opMark)
	w.write(p)
	var segments []*segment
	for i, d := range devices {
		w.copy(&d.spooled)
		for j := range d.segments {
			if s := &d.segments[j]; s.last > 0 {
				s.device = i
				segments = append(segments, s)
			}
		}
	}
	p = append(p[:0], opAppends)
	p.text("segments")
	p.list(len(segments), func(i int) { segments[i].write(&p) })
	p.op(opSetItems, opStop)
	w.write(p)
	if w.err != nil {
		return w.err
	}
	return w.out.Flush()
}

func (w *Writer) write(p pickle) {
	if w.err == nil {
		_, w.err = w.out.Write(p)
	}
}

// copy copies a list from the spool.
func (w *Writer) copy(s *spooled) {
	w.write(pickle{opEmptyList})
	for _, one := range s.parts {
		if w.err == nil {
			_, w.err = io.Copy(w.out, io.NewSectionReader(w.spool, one.offset, int64(one.length)))
		}
	}
}
