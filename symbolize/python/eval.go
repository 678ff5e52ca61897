package python

import (
	"errors"
	"slices"
	"strings"

	"ttmem/symbolize"
)

const evalName = "_PyEval_EvalFrameDefault"

// maxEval is how large the function may be, in bytes. The real ones are below
// 100,000.
const maxEval = 1 << 20

// findEval is the code of _PyEval_EvalFrameDefault: the function first, then the
// parts that the compiler split off for being seldom needed (".cold") and which
// run in its stack frame. Parts that are called (".part.0") are none of it: their
// callers are in the native stack as well.
//
// The parts are found by the jumps that lead there, not by their symbols, which
// stripped files do not have. The bounds of a part are those of its description
// for unwinding. A file without those has only its first range.
func findEval(e *symbolize.ELF) ([]Range, error) {
	f, ok := e.Lookup(evalName)
	if !ok || f.Size == 0 || f.Size > maxEval || f.Addr+f.Size < f.Addr || !executable(e, f.Addr) {
		return nil, errors.New("no function " + evalName)
	}
	hot := Range{f.Addr, f.Addr + f.Size}
	ranges := []Range{hot}
	unwound, ok := readUnwind(e)
	if !ok {
		return ranges, nil
	}
	code, err := read(e, hot.Start, int(f.Size))
	if err != nil {
		return nil, err
	}
	refused, candidates := map[Range]bool{}, 0
	jumps(code, hot.Start, func(to uint64, conditional bool) bool {
		if hot.Contains(to) || !executable(e, to) || inAny(ranges, to) {
			return true
		}
		if candidates++; candidates > maxCandidates {
			return false
		}
		part, ok := unwound.at(to)
		if !ok || refused[part] {
			return true
		}
		// Another function may be jumped to as well, but to its first byte
		// and without condition, where a call comes last.
		if to == part.Start && !conditional {
			return true
		}
		if splitOff(e, part, hot) {
			ranges = append(ranges, part)
		} else {
			refused[part] = true
		}
		return len(ranges)+len(refused) < maxParts
	})
	slices.SortFunc(ranges[1:], func(a, b Range) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	return ranges, nil
}

// How many jumps out of the function, and how many parts that they lead to, are
// looked at. The real function has some hundred, to one part.
const (
	maxCandidates = 1 << 14
	maxParts      = 64
)

// splitOff reports whether a part of the code belongs to the function hot: it has
// the function's name, or where it has none it jumps back into the midst of it.
func splitOff(e *symbolize.ELF, part, hot Range) bool {
	if s, _, ok := e.At(part.Start); ok {
		return strings.HasPrefix(s.Name, evalName+".") && !strings.HasPrefix(s.Name, evalName+".part")
	}
	if part.End-part.Start > maxEval {
		return false
	}
	code, err := read(e, part.Start, int(part.End-part.Start))
	if err != nil {
		return false
	}
	back := false
	jumps(code, part.Start, func(to uint64, _ bool) bool {
		back = to > hot.Start && to < hot.End
		return !back
	})
	return back
}

// jumps calls f with the targets of what may be jumps with distances of 4 bytes,
// until it returns false. Any byte may be the start of one: instructions are not
// taken apart, since a decoder that loses its step would miss the rest. About
// one in 100,000 bytes pretends to lead somewhere in the file's code.
func jumps(code []byte, addr uint64, f func(to uint64, conditional bool) bool) {
	for i := 0; i+5 <= len(code); i++ {
		length, conditional := 0, false
		switch {
		case code[i] == 0xe9:
			length = 5
		case code[i] == 0x0f && code[i+1]&0xf0 == 0x80 && i+6 <= len(code):
			length, conditional = 6, true
		default:
			continue
		}
		to := addr + uint64(i+length) + relative(code[i+length-4:])
		if !f(to, conditional) {
			return
		}
	}
}

func inAny(ranges []Range, addr uint64) bool {
	return slices.ContainsFunc(ranges, func(r Range) bool { return r.Contains(addr) })
}
