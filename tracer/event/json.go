package event

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// Version is the "v" of the records that AppendJSON writes, and the newest that
// a Reader understands.
const Version = 1

// AppendJSON appends the event's record to b: one JSON object with "v" first
// and without a newline. Fields that do not apply to the event's kind are left
// out. Bytes that are not UTF-8 become U+FFFD. There is no record of a Checkpoint.
//
// It is written by hand because a model that runs eagerly makes 200,000 events
// a second, each of which is a line of the event file.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"v":1,"time_ns":`...)
	b = strconv.AppendUint(b, e.TimeNs, 10)
	b = append(b, `,"kind":`...)
	b = appendString(b, e.Kind.String())
	// Lost events belong to no process where the whole buffer was full, and marks of
	// users never do.
	if e.Kind < Lost || e.PID != 0 {
		b = appendInt(b, "pid", e.PID)
	}
	if e.TID != 0 {
		b = appendInt(b, "tid", e.TID)
	}
	b = appendText(b, "comm", e.Comm)

	switch e.Kind {
	case Alloc, Free:
		b = e.appendDevices(b)
		b = e.appendBuffer(b)
		b = e.appendPerCore(b)
		b = appendText(b, "reason", e.Reason.String())
	case AllocFailed:
		b = e.appendDevices(b)
		b = e.appendFailure(b)
		b = e.appendPerCore(b)
	case CBAlloc:
		b = e.appendDevices(b)
		b = append(b, `,"region":"CB"`...)
		b = appendUint(b, "program_id", e.ProgramID)
		b = appendUint(b, "address", e.Address)
		b = appendUint(b, "size_bytes", e.SizeBytes)
		b = appendCores(b, e.Cores)
		b = appendText(b, "static_kind", e.StaticKind.String())
		b = appendFlag(b, "global", e.Global)
	case KernelLoad:
		b = e.appendDevices(b)
		b = append(b, `,"region":"KERNEL"`...)
		b = appendUint(b, "program_id", e.ProgramID)
		b = appendUint(b, "size_bytes", e.SizeBytes)
		b = appendUint(b, "bytes_per_bank", e.BytesPerBank)
		b = appendCores(b, e.Cores)
	case CBFree, KernelUnload:
		// No devices stand for all of them.
		if len(e.Devices) > 0 {
			b = e.appendDevices(b)
		}
		region := CB
		if e.Kind == KernelUnload {
			region = Kernel
		}
		b = appendText(b, "region", region.String())
		b = appendUint(b, "program_id", e.ProgramID)
		b = appendText(b, "reason", e.Reason.String())
	case DeviceOpen:
		b = e.appendDevices(b)
		b = appendUint(b, "allocator", e.Allocator)
		b = appendText(b, "board", e.Board)
		b = appendText(b, "arch", e.Arch)
		b = appendFlag(b, "mesh", e.Mesh)
		b = e.appendCapacities(b)
	case DeviceClose:
		b = e.appendDevices(b)
		b = appendUint(b, "allocator", e.Allocator)
	case ProcessStart:
		b = appendText(b, "command", e.Command)
		b = appendText(b, "library", e.Library)
		b = appendText(b, "release", e.Release)
		b = appendInt(b, "uid", e.UID)
		b = appendText(b, "container", e.Container)
		b = appendText(b, "pod", e.Pod)
		if e.ContainerPID != 0 {
			b = appendInt(b, "container_pid", e.ContainerPID)
		}
		b = appendFlag(b, "attached_late", e.AttachedLate)
	case ProcessExit:
		if e.ExitStatus != UnknownStatus {
			b = appendInt(b, "exit_status", e.ExitStatus)
		}
	case Lost:
		b = appendUint(b, "count", e.Count)
		b = appendText(b, "cause", e.Cause)
	case Mark:
		b = appendText(b, "cause", e.Cause)
		b = appendInt(b, "uid", e.UID)
	case ProgramRun:
		b = e.appendDevices(b)
		b = appendUint(b, "program_id", e.ProgramID)
	}
	b = appendFlag(b, "before_attach", e.BeforeAttach)
	b = appendFlag(b, "reread", e.Reread)
	if e.Stack != nil {
		b = append(b, `,"stack":`...)
		b = e.Stack.appendJSON(b)
	}
	return append(b, '}')
}

// appendBuffer appends what describes a buffer.
func (e *Event) appendBuffer(b []byte) []byte {
	b = appendText(b, "region", e.Region.String())
	b = appendUint(b, "buffer_id", e.BufferID)
	b = appendUint(b, "object", e.Object)
	b = appendNonzero(b, "allocator", e.Allocator)
	b = appendUint(b, "address", e.Address)
	b = appendUint(b, "size_bytes", e.SizeBytes)
	if e.Kind == Alloc || e.PageSizeBytes != 0 {
		b = appendUint(b, "page_size_bytes", e.PageSizeBytes)
	}
	b = appendText(b, "layout", e.Layout.String())
	b = appendUint(b, "bytes_per_bank", e.BytesPerBank)
	return appendUint(b, "banks", uint64(e.Banks))
}

// appendFailure appends what describes a request that failed: a buffer's, or a
// program's where its static region met the buffers of L1.
func (e *Event) appendFailure(b []byte) []byte {
	b = appendText(b, "region", e.Region.String())
	if e.Region < CB {
		b = appendUint(b, "size_bytes", e.SizeBytes)
		b = appendUint(b, "page_size_bytes", e.PageSizeBytes)
		b = appendText(b, "layout", e.Layout.String())
		b = appendUint(b, "bytes_per_bank", e.BytesPerBank)
		b = appendUint(b, "banks", uint64(e.Banks))
		b = appendNonzero(b, "allocator", e.Allocator)
	} else {
		b = appendUint(b, "program_id", e.ProgramID)
		b = appendText(b, "static_kind", e.StaticKind.String())
		b = appendNonzero(b, "size_bytes", e.SizeBytes)
		if len(e.Cores) > 0 {
			b = appendCores(b, e.Cores)
		}
	}
	b = appendText(b, "reason", e.Reason.String())
	return appendText(b, "message", e.Message)
}

// appendPerCore appends that a buffer is on single cores, and on which.
func (e *Event) appendPerCore(b []byte) []byte {
	if !e.PerCore {
		return b
	}
	b = append(b, `,"per_core":true`...)
	if e.Kind == Alloc && len(e.Cores) > 0 {
		b = appendCores(b, e.Cores)
	}
	return b
}

func (e *Event) appendDevices(b []byte) []byte {
	b = append(b, `,"devices":[`...)
	for i, id := range e.Devices {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return append(b, ']')
}

// appendCapacities appends the regions that the device has.
func (e *Event) appendCapacities(b []byte) []byte {
	b = append(b, `,"capacities":{`...)
	first := true
	for r, c := range e.Capacities {
		if c == (Capacity{}) {
			continue
		}
		if !first {
			b = append(b, ',')
		}
		first = false
		b = appendString(b, Region(r).String())
		b = append(b, `:{"banks":`...)
		b = strconv.AppendUint(b, uint64(c.Banks), 10)
		b = appendUint(b, "bytes_per_bank", c.BytesPerBank)
		b = appendNonzero(b, "base_address", c.Base)
		b = append(b, '}')
	}
	return append(b, '}')
}

func appendCores(b []byte, cores []CoreRange) []byte {
	b = append(b, `,"cores":[`...)
	for i, c := range cores {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, n := range [...]uint16{c.X0, c.Y0, c.X1, c.Y1} {
			if j > 0 {
				b = append(b, ',')
			}
			b = strconv.AppendUint(b, uint64(n), 10)
		}
		b = append(b, ']')
	}
	return append(b, ']')
}

// appendFrames appends frames as records have them, commas between them.
func appendFrames(b []byte, stack []Frame) []byte {
	for i := range stack {
		f := &stack[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"kind":`...)
		b = appendString(b, f.Kind)
		b = appendText(b, "name", f.Name)
		b = appendText(b, "file", f.File)
		if f.Line != 0 {
			b = appendInt(b, "line", f.Line)
		}
		b = appendFlag(b, "inlined", f.Inlined)
		b = appendText(b, "module", f.Module)
		if f.Name == "" && f.Address != 0 {
			b = appendUint(b, "address", f.Address)
		}
		b = append(b, '}')
	}
	return b
}

// MarshalJSON gives the frame as records have it, so that it is the same in all documents.
func (f Frame) MarshalJSON() ([]byte, error) { return appendFrames(nil, []Frame{f}), nil }

// appendKey appends a comma and a key, which needs no escapes.
func appendKey(b []byte, key string) []byte {
	b = append(b, ',', '"')
	b = append(b, key...)
	return append(b, '"', ':')
}

func appendUint(b []byte, key string, v uint64) []byte {
	return strconv.AppendUint(appendKey(b, key), v, 10)
}

func appendInt(b []byte, key string, v int) []byte {
	return strconv.AppendInt(appendKey(b, key), int64(v), 10)
}

// appendNonzero appends a number, or nothing where it is 0.
func appendNonzero(b []byte, key string, v uint64) []byte {
	if v == 0 {
		return b
	}
	return appendUint(b, key, v)
}

// appendFlag appends true, or nothing where it is false.
func appendFlag(b []byte, key string, v bool) []byte {
	if !v {
		return b
	}
	return append(appendKey(b, key), "true"...)
}

// appendText appends a string, or nothing where it is empty.
func appendText(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	return appendString(appendKey(b, key), s)
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	n := 0
	for n < len(s) && s[n] >= ' ' && s[n] < 0x7f && s[n] != '"' && s[n] != '\\' {
		n++
	}
	b = append(append(b, '"'), s[:n]...) // most have no other character
	for _, r := range s[n:] {            // bytes that are not UTF-8 are RuneErrors
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, '\\', 'n')
		case r == '\t':
			b = append(b, '\\', 't')
		case r < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		case unprintable(r):
			b = appendEscape(b, r)
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// unprintable reports whether a character of a JSON text is to be escaped.
func unprintable(r rune) bool { return r >= 0x7f && !printable(r) }

// appendEscape appends a character as JSON escapes it: in UTF-16.
func appendEscape(b []byte, r rune) []byte {
	for _, unit := range utf16.AppendRune(nil, r) {
		b = fmt.Appendf(b, "\\u%04x", unit)
	}
	return b
}

// MarshalJSON returns v as JSON, in which characters that are not printable are escaped. All
// documents are written by it.
func MarshalJSON(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return escaped(text), nil
}

// escaped escapes the characters of a JSON text that are unprintable. It means the same as
// before.
func escaped(text []byte) []byte {
	var b []byte
	for {
		n := bytes.IndexFunc(text, unprintable)
		if n < 0 && b == nil {
			return text
		}
		if n < 0 {
			return append(b, text...)
		}
		r, size := utf8.DecodeRune(text[n:])
		b = appendEscape(append(b, text[:n]...), r)
		text = text[n+size:]
	}
}
