package marks

import (
	"strings"

	"ttmem/symbolize"
)

// maxMarkedFunctions bounds the functions of a file with one name: overloads and template
// instances.
const maxMarkedFunctions = 256

// functionsNamed returns the file offsets of the functions with these names, and the name's
// number for each.
func functionsNamed(e *symbolize.ELF, names []string) (offsets, numbers []uint64) {
	seen := make(map[uint64]bool)
	count := make([]int, len(names))
	eachCode(e, func(symbol string, offset uint64) {
		if seen[offset] {
			return
		}
		for i, name := range names {
			if count[i] < maxMarkedFunctions && isNamed(symbol, name) {
				seen[offset] = true
				count[i]++
				offsets, numbers = append(offsets, offset), append(numbers, uint64(i))
				return
			}
		}
	})
	return offsets, numbers
}

// eachCode calls f with each function in an executable segment. A breakpoint anywhere else
// would be read by the program as data or as part of another instruction: data may lie in
// the same segment and have a symbol, and a symbol without a size may stand at the end of a
// function.
func eachCode(e *symbolize.ELF, f func(symbol string, offset uint64)) {
	e.EachFunction(func(s symbolize.Symbol) {
		if s.Size > 0 && e.InCode(s.Addr) {
			if offset, ok := e.FileOffset(s.Addr); ok {
				f(s.Name, offset)
			}
		}
	})
}

// isNamed reports whether a symbol matches a name given by the user: mangled, or demangled
// with or without parameters.
func isNamed(symbol, name string) bool {
	if symbol == name {
		return true
	}
	// the mangled name contains the last identifier, which is cheaper to check
	if !strings.Contains(symbol, lastIdentifier(name)) {
		return false
	}
	return symbolize.ShortName(symbol) == name || strings.Contains(name, "(") && symbolize.FullName(symbol) == name
}

// lastIdentifier returns the function's own name: softmax for ttnn::softmax and for
// ttnn::softmax(int).
func lastIdentifier(name string) string {
	name, _, _ = strings.Cut(name, "(")
	if i := strings.LastIndex(name, "::"); i >= 0 {
		name = name[i+2:]
	}
	name = strings.TrimPrefix(name, "~")
	if strings.HasPrefix(name, "operator") || strings.ContainsAny(name, "<{ ") {
		return ""
	}
	return name
}
