package symbolize

import "strings"

// Section is where a section's content lies: the virtual address of its first
// byte, the offset of that byte in the file, and its size, in bytes.
type Section struct {
	Addr, Offset, Size uint64
}

// EHFrame is where the section .eh_frame lies, which says how to unwind the
// file's code; false if the file has none, or no section headers.
func (e *ELF) EHFrame() (Section, bool) {
	s := e.ehFrame
	return Section{s.addr, s.offset, s.size}, s.size > 0
}

// Bytes are size bytes at an offset of the file. More than limit bytes, or more
// than the file has, are an error before anything is allocated.
func (e *ELF) Bytes(offset, size, limit uint64) ([]byte, error) {
	return e.read(offset, size, limit)
}

// Size is the size of the file in bytes.
func (e *ELF) Size() uint64 { return uint64(max(e.size, 0)) }

// HasDebugInfo reports whether the file has DWARF, which package symbolize/lines reads.
func (e *ELF) HasDebugInfo() bool { return e.debugInfo }

// DebugLink is the name of the debug file that the file says to have; "" if it has none.
func (e *ELF) DebugLink() string {
	b, _ := e.read(e.debugLink.offset, e.debugLink.size, 4096)
	if name := cString(b, 0); !strings.Contains(name, "/") {
		return name
	}
	return ""
}
