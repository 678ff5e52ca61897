package symbolize

import "strings"

// Section is the position of a section: virtual address, file offset and size, in bytes.
type Section struct {
	Addr, Offset, Size uint64
}

// EHFrame returns the section .eh_frame, which describes how to unwind the file's code;
// false if the file has none, or no section headers.
func (e *ELF) EHFrame() (Section, bool) {
	s := e.ehFrame
	return Section{s.addr, s.offset, s.size}, s.size > 0
}

// Bytes returns size bytes at an offset of the file. It fails before allocating if that
// exceeds limit or the file.
func (e *ELF) Bytes(offset, size, limit uint64) ([]byte, error) {
	return e.read(offset, size, limit)
}

// Size returns the size of the file in bytes.
func (e *ELF) Size() uint64 { return uint64(max(e.size, 0)) }

// HasDebugInfo reports whether the file has DWARF, which package symbolize/lines reads.
func (e *ELF) HasDebugInfo() bool { return e.debugInfo }

// DebugLink returns the name of the separate debug file; "" if the file names none.
func (e *ELF) DebugLink() string {
	b, _ := e.read(e.debugLink.offset, e.debugLink.size, 4096)
	if name := cString(string(b), 0); !strings.Contains(name, "/") {
		return name
	}
	return ""
}
