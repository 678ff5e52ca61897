package symbolize

import (
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// rust reports whether a symbol is mangled by Rust: `_R…`, or in the older form `_ZN…17h<16
// hexadecimal digits>E`.
func rust(symbol string) bool {
	if strings.HasPrefix(symbol, "_R") {
		return true
	}
	symbol = withoutClones(symbol)
	const hash = len("17h0123456789abcdefE")
	return strings.HasPrefix(symbol, "_ZN") && strings.HasSuffix(symbol, "E") && len(symbol) > len("_ZN")+hash &&
		symbol[len(symbol)-hash:len(symbol)-hash+3] == "17h"
}

// shortRust returns the short form of a mangled Rust name, "" for another name:
// `core::ptr::drop_in_place`, `<alloc::vec::Vec as core::ops::Drop>::drop`.
func shortRust(symbol string) string {
	// With NoTemplateParams the demangler also processes the parts that it does not print, so the
	// limit would not bound its work. So generics are removed here.
	full := demangled(func() (string, error) {
		return demangle.ToString(withoutClones(symbol), demangle.NoParams, demangle.MaxLength(12))
	})
	return withoutGenerics(full)
}

// withoutGenerics removes `::<T>` and `<T>` from a Rust name, but not the type `<T as
// Trait>` at its beginning.
func withoutGenerics(name string) string {
	var b strings.Builder
	depth := 0
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case depth == 0 && c == '<' && (i == 0 || strings.IndexByte("<&( ", name[i-1]) >= 0):
			b.WriteByte(c)
		case c == '<':
			if depth++; depth == 1 {
				trimmed := strings.TrimSuffix(b.String(), "::")
				b.Reset()
				b.WriteString(trimmed)
			}
		case c == '>' && i > 0 && name[i-1] == '-': // fn() -> T
			if depth == 0 {
				b.WriteByte(c)
			}
		case c == '>' && depth > 0:
			depth--
		case depth == 0:
			b.WriteByte(c)
		}
	}
	return b.String()
}
