package symbolize

import (
	"bytes"
	"debug/elf"
	"io"
	"slices"
)

// maxConstants bounds the bytes that are searched for constants. The .rodata of ttnn's largest library has 3 MB.
const maxConstants = 1 << 26

// HasConstants reports whether the constants of a file have all of these strings: its section .rodata or, without
// that, all that it loads and does not write to.
func (e *ELF) HasConstants(texts ...string) bool {
	missing := make([][]byte, len(texts))
	longest := 0
	for i, text := range texts {
		missing[i] = []byte("\x00" + text + "\x00")
		longest = max(longest, len(missing[i]))
	}
	left := uint64(maxConstants)
	for _, s := range e.constantSections() {
		s.Size = min(s.Size, left)
		left -= s.Size
		var window []byte // a text may cross the end of a part
		_ = e.EachPart(s, func(part []byte) error {
			window = append(append(window[:0], window[max(0, len(window)-longest):]...), part...)
			missing = slices.DeleteFunc(missing, func(text []byte) bool { return bytes.Contains(window, text) })
			if len(missing) == 0 {
				return io.EOF
			}
			return nil
		})
		if len(missing) == 0 {
			return true
		}
	}
	return false
}

// constantSections returns where a file has its constants.
func (e *ELF) constantSections() (list []Section) {
	if e.constants.Size > 0 {
		return []Section{e.constants}
	}
	for _, p := range e.headers {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_W == 0 && p.Off <= e.Size() {
			list = append(list, Section{p.Vaddr, p.Off, min(p.Filesz, e.Size()-p.Off)})
		}
	}
	return list
}
