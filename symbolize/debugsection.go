package symbolize

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// debugSection is a section of debug information where it lies in the file.
type debugSection struct {
	section
	compressed bool
}

// keepDebug remembers a section if its name is one that is read.
func (e *ELF) keepDebug(name string, s *elf.Section64) {
	if t := elf.SectionType(s.Type); t != elf.SHT_PROGBITS && t != shtUnwind || s.Size == 0 {
		return
	}
	switch name {
	case ".gnu_debuglink",
		".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_line_str", ".debug_ranges",
		".debug_rnglists", ".debug_addr", ".debug_str_offsets",
		".zdebug_info", ".zdebug_abbrev", ".zdebug_line", ".zdebug_str", ".zdebug_ranges":
	default:
		return
	}
	if _, ok := e.debug[name]; ok {
		return
	}
	if e.debug == nil {
		e.debug = map[string]debugSection{}
	}
	e.debug[name] = debugSection{
		section{s.Addr, s.Off, s.Size}, elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0,
	}
}

// hasDebugInfo reports whether a file has debug information of its own.
func (e *ELF) hasDebugInfo() bool {
	_, plain := e.debug[".debug_info"]
	_, old := e.debug[".zdebug_info"]
	return plain || old
}

// span is the content of a section: in the file, or in memory if the file has it
// compressed.
type span struct {
	e      *ELF
	offset uint64
	size   uint64
	memory []byte
}

// part is size bytes at an offset of the section. It is not to be modified.
func (s *span) part(at, size uint64) ([]byte, error) {
	if at > s.size || size > s.size-at {
		return nil, fmt.Errorf("%d bytes at %#x of a section: %w", size, at, io.ErrUnexpectedEOF)
	}
	if s.memory != nil {
		return s.memory[at : at+size], nil
	}
	return s.e.read(s.offset+at, size, 1<<20)
}

// text is the string at an offset of the section, up to its NUL; "" if it has
// none within maxName bytes.
func (s *span) text(at uint64) string {
	for n := uint64(128); at < s.size; n *= 8 {
		n = min(n, s.size-at, maxName)
		b, err := s.part(at, n)
		if err != nil {
			return ""
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(b[:end])
		}
		if n == s.size-at || n == maxName {
			return ""
		}
	}
	return ""
}

// maxInflated is how many bytes of decompressed debug information this program
// holds, of all files together. Files that come later have names, but no lines.
const maxInflated = 64 << 20

var inflated atomic.Int64

var (
	errInflated    = errors.New("decompressed debug information takes too much memory")
	errCompression = errors.New("unknown compression")
)

// span opens a section of debug information by its name without `.debug_`; an
// empty one if the file has none.
func (e *ELF) span(name string) (span, error) {
	if s, ok := e.debug[".debug_"+name]; ok {
		if !s.compressed {
			return span{e: e, offset: s.offset, size: s.size}, nil
		}
		// Elf64_Chdr: type, reserved, size, alignment
		head, err := e.read(s.offset, 24, 24)
		if err != nil {
			return span{}, err
		}
		// Zstandard is not in the standard library: such files have no lines.
		if t := elf.CompressionType(binary.LittleEndian.Uint32(head)); t != elf.COMPRESS_ZLIB {
			return span{}, fmt.Errorf("%w: %v", errCompression, t)
		}
		return e.inflate(s.offset+24, s.size-24, binary.LittleEndian.Uint64(head[8:]))
	}
	if s, ok := e.debug[".zdebug_"+name]; ok {
		head, err := e.read(s.offset, 12, 12)
		if err != nil {
			return span{}, err
		}
		if !strings.HasPrefix(string(head), "ZLIB") {
			return span{}, errCompression
		}
		return e.inflate(s.offset+12, s.size-12, binary.BigEndian.Uint64(head[4:]))
	}
	return span{}, nil
}

// inflate decompresses a part of the file into memory that is not the garbage
// collector's: it would double what is held.
func (e *ELF) inflate(offset, size, claimed uint64) (span, error) {
	const ratio = 1032 // deflate does not compress better
	if size > uint64(e.size) || claimed == 0 || claimed > size*ratio {
		return span{}, io.ErrUnexpectedEOF
	}
	if claimed > maxInflated {
		return span{}, errInflated
	}
	if inflated.Add(int64(claimed)) > maxInflated {
		inflated.Add(-int64(claimed))
		return span{}, errInflated
	}
	memory, err := unix.Mmap(-1, 0, int(claimed), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		inflated.Add(-int64(claimed))
		return span{}, err
	}
	s := span{e: e, size: claimed, memory: memory}
	z, err := zlib.NewReader(io.NewSectionReader(e.r, int64(offset), int64(size)))
	if err == nil {
		_, err = io.ReadFull(z, memory)
	}
	if err != nil {
		s.close()
		return span{}, err
	}
	return s, nil
}

func (s *span) close() {
	if s.memory != nil {
		inflated.Add(-int64(len(s.memory)))
		unix.Munmap(s.memory)
	}
	*s = span{}
}
