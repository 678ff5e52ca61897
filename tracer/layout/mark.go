package layout

//go:generate clang-19 -shared -nostdlib -O2 -fPIC -fcf-protection=none -Wl,--build-id=none,-z,noseparate-code,-s -o ../../python/ttmem/ttmem/libttmem_mark.so ../../python/ttmem/mark.c

import "ttmem/symbolize"

// markFunction is what a process calls to name the present moment: python/ttmem/mark.c.
const markFunction = "ttmem_mark"

// Mark returns the file offset of the function with which a process names moments, if a file exports it. A
// breakpoint in anything but a function's code would be read as data, or as part of another instruction.
func Mark(e *symbolize.ELF) (offset uint64, ok bool) {
	if !e.Exports(markFunction) {
		return 0, false
	}
	e.EachFunction(func(s symbolize.Symbol) {
		if s.Name == markFunction && s.Size > 0 && e.InCode(s.Addr) && !ok {
			offset, ok = e.FileOffset(s.Addr)
		}
	})
	return offset, ok
}
