package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// A Header describes where and when a recording was made.
type Header struct {
	// Created is the time at which the file was begun, MonotonicNs that time by
	// CLOCK_MONOTONIC.
	Created     time.Time
	MonotonicNs uint64
	// Host is the name of the host, Kernel its release, and Ttmem the version of ttmem that
	// wrote the file.
	Host, Kernel, Ttmem string
	// Recording is a number that the files of one recording share, Part the number of the
	// file, from 0.
	Recording uint64
	Part      int
}

// NewHeader returns the header of a recording that begins now on this host.
func NewHeader() Header {
	var now unix.Timespec
	created := time.Now()
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // fails on no Linux
	h := Header{
		Created: created, MonotonicNs: uint64(now.Nano()),
		Ttmem: "unknown", Recording: rand.Uint64(),
	}
	h.Host, _ = os.Hostname()
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		h.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		h.Ttmem = info.Main.Version
	}
	return h
}

// The fields of a header.
const (
	headerCreated = 1 + iota
	headerMonotonic
	headerHost
	headerKernel
	headerTtmem
	headerRecording
	headerPart
)

// headerSize is the length of the magic, the format, and the payload's length and checksum.
const headerSize = len(magic) + 2 + 2 + 4

func (h *Header) append(b []byte) []byte {
	short := func(s string) string { return s[:min(len(s), 4096)] }
	var p []byte
	p = appendIntField(p, headerCreated, h.Created.UnixNano())
	p = appendUintField(p, headerMonotonic, h.MonotonicNs)
	p = appendTextField(p, headerHost, short(h.Host))
	p = appendTextField(p, headerKernel, short(h.Kernel))
	p = appendTextField(p, headerTtmem, short(h.Ttmem))
	p = appendUintField(p, headerRecording, h.Recording)
	p = appendIntField(p, headerPart, int64(h.Part))
	p = appendUvarint(p, 0)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, Format)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(p)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(p, castagnoli))
	return append(b, p...)
}

// readHeader reads a header and returns its length. name is the name of the file.
func readHeader(in io.Reader, name string) (h Header, size int64, err error) {
	var head [headerSize]byte
	n, err := io.ReadFull(in, head[:])
	have := head[:n]
	if err != nil && !atEnd(err) {
		return h, 0, fmt.Errorf("reading %s: %w", name, cause(err))
	}
	if n == 0 {
		return h, 0, &emptyError{name}
	}
	if !bytes.HasPrefix(have, []byte(magic)[:min(n, len(magic))]) {
		return h, 0, &notRecording{name}
	}
	if n >= len(magic)+2 {
		if v := int(binary.LittleEndian.Uint16(head[len(magic):])); v == 0 {
			return h, 0, &DamagedError{name, 0, "its header has no version"}
		} else if v != Format {
			return h, 0, &VersionError{name, v}
		}
	}
	if err != nil {
		return h, 0, &TruncatedError{name, 0}
	}
	p := make([]byte, binary.LittleEndian.Uint16(head[len(magic)+2:]))
	if _, err := io.ReadFull(in, p); err != nil {
		if atEnd(err) {
			return h, 0, &TruncatedError{name, 0}
		}
		return h, 0, fmt.Errorf("reading %s: %w", name, cause(err))
	}
	if crc32.Checksum(p, castagnoli) != binary.LittleEndian.Uint32(head[len(magic)+4:]) {
		return h, 0, &DamagedError{name, 0, "the checksum of its header is wrong"}
	}
	c := cursor{b: p}
	h.Created = time.Unix(0, 0)
	for f := c.field(); f.number != 0; f = c.field() {
		switch f.number {
		case headerCreated:
			h.Created = time.Unix(0, unzigzag(f.value))
		case headerMonotonic:
			h.MonotonicNs = f.value
		case headerHost:
			h.Host = string(f.text)
		case headerKernel:
			h.Kernel = string(f.text)
		case headerTtmem:
			h.Ttmem = string(f.text)
		case headerRecording:
			h.Recording = f.value
		case headerPart:
			h.Part = int(unzigzag(f.value))
		}
	}
	if c.bad {
		return h, 0, &DamagedError{name, 0, "its header makes no sense"}
	}
	return h, int64(headerSize + len(p)), nil
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

type emptyError struct{ name string }

func (e *emptyError) Error() string {
	return e.name + " is empty: nothing was recorded; record again"
}

func (e *emptyError) Is(target error) bool { return target == ErrNotRecording }
