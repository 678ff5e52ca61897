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

	"ttmem/tracer/codec"
	"ttmem/tracer/host"
)

// A Header describes where and when a recording was made.
type Header struct {
	// Created is the time at which the file begins, and MonotonicNs the same time by
	// CLOCK_MONOTONIC.
	Created     time.Time
	MonotonicNs uint64
	// Host is the name of the host, Kernel its release, and Ttmem the version of ttmem that
	// wrote the file.
	Host, Kernel, Ttmem string
	// Recording is a number that all files of one recording share. Part is the number of the
	// file, from 0.
	Recording uint64
	Part      int
}

// NewHeader returns the header of a recording that begins now on this host.
func NewHeader() Header {
	h := Header{
		Created: time.Now(), MonotonicNs: host.Now(), Kernel: host.KernelRelease(),
		Ttmem: "unknown", Recording: rand.Uint64(),
	}
	h.Host, _ = os.Hostname()
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		h.Ttmem = info.Main.Version
	}
	return h
}

// values writes or reads the header.
func (h *Header) values(c *codec.Codec) {
	created := uint64(h.Created.UnixNano())
	c.Uints(&created, &h.MonotonicNs, &h.Recording)
	h.Created = time.Unix(0, int64(created))
	codec.Number(c, &h.Part)
	for _, s := range [...]*string{&h.Host, &h.Kernel, &h.Ttmem} {
		*s = (*s)[:min(len(*s), 4096)]
		c.Text(s)
	}
}

// headerSize is the length of the magic, the format, and the payload's length and checksum.
const headerSize = len(magic) + 2 + 2 + 4

// bytes returns the header in the form of a recording.
func (h Header) bytes() []byte {
	c := codec.NewWriter()
	h.values(c)
	b := []byte(magic)
	b = binary.LittleEndian.AppendUint16(b, Format)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.Data)))
	b = binary.LittleEndian.AppendUint32(b, crc32.Checksum(c.Data, castagnoli))
	return append(b, c.Data...)
}

// readHeader reads a header and returns its length. name is the name of the file.
func readHeader(in io.Reader, name string) (h Header, size int64, err error) {
	var head [headerSize]byte
	n, err := io.ReadFull(in, head[:])
	have := head[:n]
	if err != nil && !atEnd(err) {
		return h, 0, readError(name, 0, err)
	}
	if n == 0 {
		return h, 0, errors.New(name + " is empty: nothing was recorded; record again")
	}
	for start, tool := range map[string]string{"\x1f\x8b": "gunzip", "\x28\xb5\x2f\xfd": "unzstd", "\xfd7zXZ": "unxz"} {
		if bytes.HasPrefix(have, []byte(start)) {
			return h, 0, fmt.Errorf("%s is compressed: `%s -k %s` first", name, tool, name)
		}
	}
	if !bytes.HasPrefix(have, []byte(magic)[:min(n, len(magic))]) {
		return h, 0, errors.New(name + " is not a ttmem recording: `ttmem run -o FILE -- COMMAND` makes one")
	}
	if n >= len(magic)+2 {
		if v := int(binary.LittleEndian.Uint16(head[len(magic):])); v == 0 {
			return h, 0, &DamagedError{name, 0, "its header has no version"}
		} else if v != Format {
			return h, 0, otherFormat(name, v)
		}
	}
	if err != nil {
		return h, 0, readError(name, 0, err)
	}
	p := make([]byte, binary.LittleEndian.Uint16(head[len(magic)+2:]))
	if _, err := io.ReadFull(in, p); err != nil {
		return h, 0, readError(name, 0, err)
	}
	if crc32.Checksum(p, castagnoli) != binary.LittleEndian.Uint32(head[len(magic)+4:]) {
		return h, 0, &DamagedError{name, 0, "the checksum of its header is wrong"}
	}
	c := codec.NewReader(p, nil)
	if h.values(c); c.Bad {
		return h, 0, &DamagedError{name, 0, "its header is invalid"}
	}
	return h, int64(headerSize + len(p)), nil
}

func atEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
