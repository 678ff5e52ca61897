package python

import (
	"fmt"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// reference is an address in the file that an instruction uses.
type reference struct {
	addr uint64
	// load is set if a value of four bytes is read there, rather than the address taken.
	load bool
}

// maxCode bounds the bytes of a function that are decoded. The functions of interest do
// their work in the first few instructions.
const maxCode = 192

// references returns the addresses that a short function takes or reads from, in order: constants, and
// places in a symbol to which a slot of the file leads.
func references(e *symbolize.ELF, f symbolize.Symbol) (found []reference) {
	code, err := e.Text(f.Addr, int(min(f.Size, maxCode)))
	if err != nil {
		return nil
	}
	steps, _ := x86.Follow(code, f.Addr, func(uint64, *x86.State) (x86.Value, bool) { return x86.Value{}, true })
	for _, s := range steps {
		v, access := s.Access()
		if !access {
			v = s.Result()
		}
		addr := v.ID
		if distance, inSlot := v.InGlobal(); inSlot {
			name, _ := e.Slot(v.ID)
			symbol, ok := e.Lookup(name)
			if !ok {
				continue
			}
			addr = symbol.Addr + uint64(int64(distance))
		} else if v.Root != x86.Constant {
			continue
		}
		_, constant := s.Args[1].(x86asm.Imm)
		found = append(found, reference{addr, access && s.Op == x86asm.MOV && s.DataSize == 32 && !constant})
	}
	return found
}

// findKey returns the offset of autoTSSkey in _PyRuntime. It derives it from the code of
// PyGILState_GetThisThreadState, which passes the key's address to functions that test and read
// it. If those are inlined, the code reads the key's second half as the pthread key. If the
// result contradicts the table of versions, it is accepted only if the other offsets do not come
// from that table (moved).
func findKey(e *symbolize.ELF, runtime symbolize.Symbol, known uint64, moved bool) (uint64, error) {
	const pthreadKey = 4 // after the i32 that is 1 once the key exists
	f, ok := e.Lookup("PyGILState_GetThisThreadState")
	if !ok {
		return 0, fmt.Errorf("no symbol PyGILState_GetThisThreadState")
	}
	var taken, seen []uint64
	for _, r := range references(e, f) {
		offset := r.addr - runtime.Addr
		if r.addr < runtime.Addr || offset >= runtime.Size || offset == 0 {
			continue
		}
		seen = append(seen, offset)
		switch {
		case r.load && offset >= pthreadKey:
			seen = append(seen, offset-pthreadKey)
		case !r.load && offset%4 == 0:
			taken = append(taken, offset)
		}
	}
	switch {
	case len(seen) == 0 || slices.Contains(seen, known):
		// Without a reference, use the table; the kernel side checks the key.
		return known, nil
	case moved && len(taken) > 0:
		return taken[0], nil
	}
	return 0, fmt.Errorf("autoTSSkey is at one of %v in _PyRuntime, not at %d: unknown layout", seen, known)
}
