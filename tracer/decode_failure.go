package tracer

import (
	"encoding/binary"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/libraries"
)

func (d *decoder) failed(e event.Event, r *bpf.KernelFailedRecord) {
	lib := d.host.library(r.H.Library)
	if lib == nil {
		d.unknown(e.PID, "library not known")
		return
	}
	p := d.start(&e, lib)
	e.Kind, e.Message = event.AllocFailed, unix.ByteSliceToString(r.Message[:])
	e.Stack = p.stacks.Stack(r.H.Stack)
	if r.H.Flags == bpf.FailedAllocate {
		full := strings.Contains(e.Message, "Out of Memory")
		if r.Buffers[0].Object == 0 && !full {
			return // the function was on the stack by chance: no Buffer waits for memory
		}
		d.setRequested(&e, p, lib, r)
		if full {
			e.Reason = event.ReasonOutOfMemory
		}
		d.emit(e)
		d.wantAfterFailure(e.PID)
		return
	}
	e.Region, e.ProgramID, e.StaticKind = event.CB, r.ProgramId, event.CircularBuffer
	if r.H.Flags == bpf.FailedValidateDFBs {
		e.StaticKind = event.DataflowBuffer
	}
	if strings.Contains(e.Message, "clash") {
		e.Reason = event.ReasonStaticClash
	}
	e.Devices = d.chips(e.PID, p, r.Device)
	d.emit(e)
	d.wantAfterFailure(e.PID)
}

// setRequested sets the requested size: that of the newest Buffer on the stack that matches the
// message, or else the one in the message.
func (d *decoder) setRequested(e *event.Event, p *traced, lib *libraries.Library, r *bpf.KernelFailedRecord) {
	requested, known := requestedIn(e.Message)
	found := -1
	var best event.Event
	for i := range r.Buffers {
		b := &r.Buffers[i]
		one := *e
		one.Object, one.BufferID = b.Object, b.UniqueId
		if b.Object == 0 {
			break
		}
		lib.Fill(&one, b.Window[:])
		one.PerCore = b.PerCore == 1
		if int(one.Region) >= event.BankedRegions || known && (one.SizeBytes != requested.SizeBytes || one.Region != requested.Region) {
			continue // an earlier one, or no Buffer
		}
		if found < 0 || known && one.BufferID > best.BufferID {
			found, best = i, one
		}
	}
	if found >= 0 {
		word := func(at uint32) uint64 { return binary.LittleEndian.Uint64(r.Buffers[found].Window[at:]) }
		*e = best
		e.Allocator = word(lib.Kernel.Allocator)
		d.place(e, p, word(lib.Kernel.Device), e.Allocator, r.Request)
		return
	}
	e.SizeBytes, e.Region, e.Banks, e.BytesPerBank = requested.SizeBytes, requested.Region, requested.Banks, requested.BytesPerBank
	if len(p.allocators) == 1 { // the only candidate
		for at, a := range p.allocators {
			e.Allocator, e.Devices = at, a.device.chips
		}
	}
}

// outOfMemory matches the library's message for a failed allocation.
var outOfMemory = regexp.MustCompile(`Not enough space to allocate (\d+) B (\w+) buffer across (\d+) banks, where each bank needs to store (\d+) B`)

// requestedIn parses SizeBytes, Region, Banks and BytesPerBank out of a message. It returns
// false if the message does not have them.
func requestedIn(message string) (e event.Event, ok bool) {
	parts := outOfMemory.FindStringSubmatch(message)
	if parts == nil {
		return e, false
	}
	for r := range event.Region(event.BankedRegions) {
		if r.String() == parts[2] {
			e.Region, ok = r, true
		}
	}
	banks, _ := strconv.ParseUint(parts[3], 10, 32) // all are digits
	e.SizeBytes, _ = strconv.ParseUint(parts[1], 10, 64)
	e.BytesPerBank, _ = strconv.ParseUint(parts[4], 10, 64)
	e.Banks = uint32(banks)
	return e, ok
}
