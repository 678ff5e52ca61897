package python

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"ttmem/symbolize"
	"ttmem/symbolize/unwind"
)

const evalName = "_PyEval_EvalFrameDefault"

// maxEval bounds the size of the function, in bytes. The real ones are below 100,000.
const maxEval = 1 << 20

// findEval returns the code of _PyEval_EvalFrameDefault: the function, and the rarely used parts
// that the compiler split off (".cold") and that run in its stack frame. Called parts (".part.0")
// do not belong to it: their callers are on the native stack too.
//
// It finds the parts by the jumps to them, not by their symbols, because stripped files have
// none. The unwind information has the bounds of a part. Without that, the result has only the
// first range.
func findEval(e *symbolize.ELF, functions unwind.Functions) ([]Range, error) {
	f, ok := e.Lookup(evalName)
	if !ok || f.Size == 0 || f.Size > maxEval || f.Addr+f.Size < f.Addr || !e.InCode(f.Addr) {
		return nil, errors.New("no function " + evalName)
	}
	hot := Range{f.Addr, f.Addr + f.Size}
	ranges := []Range{hot}
	code, err := e.Bytes(hot.Start, int(f.Size))
	if err != nil {
		return nil, err
	}
	refused, candidates := map[Range]bool{}, 0
	jumps(code, hot.Start, func(to uint64, conditional bool) bool {
		if !e.InCode(to) || slices.ContainsFunc(ranges, func(r Range) bool { return r.Contains(to) }) {
			return true
		}
		if candidates++; candidates > maxCandidates {
			return false
		}
		start, end, ok := functions.At(to)
		part := Range{start, end}
		if !ok || refused[part] {
			return true
		}
		// A jump may also lead to another function, but then to its first byte and without
		// condition: a tail call.
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
	slices.SortFunc(ranges[1:], func(a, b Range) int { return cmp.Compare(a.Start, b.Start) })
	return ranges, nil
}

// Bounds on the jumps out of the function, and on the parts that they reach. The real function
// has some hundred jumps, to one part.
const (
	maxCandidates = 1 << 14
	maxParts      = 64
)

// splitOff reports whether a part of the code belongs to the function hot: it has the
// function's name or, without a name, it jumps back into the middle of the function.
func splitOff(e *symbolize.ELF, part, hot Range) bool {
	if s, _, ok := e.At(part.Start); ok {
		return strings.HasPrefix(s.Name, evalName+".") && !strings.HasPrefix(s.Name, evalName+".part")
	}
	if part.End-part.Start > maxEval {
		return false
	}
	code, err := e.Bytes(part.Start, int(part.End-part.Start))
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

// jumps calls f with the targets of possible jumps with 4-byte distances, until f returns false.
// A jump may begin at any byte: instructions are not decoded, because a decoder that gets out of
// step would miss the rest. About one in 100,000 bytes looks like a jump into the file's code.
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
		to := addr + uint64(i+length) + uint64(int64(int32(binary.LittleEndian.Uint32(code[i+length-4:]))))
		if !f(to, conditional) {
			return
		}
	}
}
