package symbolize

import (
	"cmp"
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Limits on the cost of a name. The longest in the libraries of ttnn has 2,500 bytes
// mangled, and 200 in the short form.
const (
	maxMangled = 1 << 14
	maxShort   = 512
	maxFull    = 14 // as a power of two: 16 KB
	maxPart    = 9  // as a power of two
)

// ShortName returns the usual form of a symbol: `ttnn::add`, `std::vector::push_back`,
// `main::{lambda#1}`. It has no parameters, no template arguments, and no compiler suffixes
// (`.cold`, `.part.0`, `[abi:cxx11]`). The stub for a function in another file is `name@plt`.
// Names of Rust keep their type arguments; those that are neither C++ nor Rust are unchanged. The
// result has at most 512 bytes.
func ShortName(symbol string) string {
	if target, ok := stubTarget(symbol); ok {
		return shorten(target) + "@plt"
	}
	return shorten(symbol)
}

func shorten(symbol string) string {
	symbol = withoutVersion(symbol)
	name := ""
	switch {
	case rust(symbol):
		name = full(symbol)
	case strings.HasPrefix(symbol, "_Z") || strings.HasPrefix(symbol, "_GLOBAL__"):
		name = shortCPP(symbol, (*shortener).name)
	}
	if name == "" {
		name = withoutClones(symbol)
	}
	return cut(name, maxShort)
}

// FullName returns everything in a mangled symbol: parameters, template arguments, qualifiers and
// the suffixes of clones. Other names, and names whose form would be longer than 16 KB, are
// returned unchanged or cut.
func FullName(symbol string) string {
	return cmp.Or(full(withoutVersion(symbol)), cut(symbol, 1<<maxFull))
}

func full(symbol string) string {
	return demangled(symbol, func() (string, error) { return demangle.ToString(symbol, demangle.MaxLength(maxFull)) })
}

// rust reports whether a symbol is mangled by Rust: `_R…`, or in the older form `_ZN…17h<16
// hexadecimal digits>E`.
func rust(symbol string) bool {
	symbol = withoutClones(symbol)
	const hash = len("17h0123456789abcdefE")
	return strings.HasPrefix(symbol, "_R") || strings.HasPrefix(symbol, "_ZN") && strings.HasSuffix(symbol, "E") &&
		len(symbol) > len("_ZN")+hash && strings.HasPrefix(symbol[len(symbol)-hash:], "17h")
}

// TemplateArgument returns the first template argument of a function, such as a class; "" if it has
// none.
func TemplateArgument(symbol string) string {
	return cut(shortCPP(withoutVersion(symbol), (*shortener).firstArgument), maxShort)
}

// demangled returns the result of f for a symbol; "" if it fails, or would take long. The demangler
// reports malformed names as errors; a panic is not expected, and must not end the program.
func demangled(symbol string, f func() (string, error)) (name string) {
	if !manageable(symbol) {
		return ""
	}
	defer func() {
		if recover() != nil {
			name = ""
		}
	}()
	name, err := f()
	if err != nil {
		return ""
	}
	return name
}

// cut shortens a name to n bytes.
func cut(name string, n int) string {
	const mark = "…"
	if len(name) <= n {
		return name
	}
	return strings.ToValidUTF8(name[:n-len(mark)], "") + mark
}

// withoutVersion removes the version of a C library's symbol: `memcpy@@GLIBC_2.14`, as in
// the symbol tables of unstripped libraries.
func withoutVersion(symbol string) string {
	if i := strings.IndexByte(symbol, '@'); i > 0 {
		return symbol[:i]
	}
	return symbol
}

// clones are the suffixes of GCC and clang for parts and copies of a function in any
// language: gcc/cgraphclones.cc, llvm's HotColdSplitting and ThinLTO.
var clones = regexp.MustCompile(`^(.*?)(\.(cold|part|isra|constprop|localalias|lto_priv|llvm|clone|alias|resolver|ifunc)(\.\d+)*)+$`)

func withoutClones(symbol string) string {
	if strings.IndexByte(symbol, '.') <= 0 {
		return symbol
	}
	if m := clones.FindStringSubmatch(symbol); m != nil && m[1] != "" {
		return m[1]
	}
	return symbol
}

// Patterns in names that would take the demangler too long. The names of ttnn have at most
// 3 of the first, and 5 of the second in a row.
const (
	maxCasts = 10
	maxLocal = 64
)

// manageable reports whether demangling a symbol takes little time, 30 ms at most. The
// demangler reads the template arguments behind a conversion operator (`cv`) twice, and
// nested ones four times. For nested functions (`Z`) and for qualifiers and pointers in a row, its
// time grows with the square of their number.
func manageable(symbol string) bool {
	return len(symbol) <= maxMangled && strings.Count(symbol, "cv") <= maxCasts &&
		!strings.Contains(symbol, strings.Repeat("Z", maxLocal)) && !manyQualifiers.MatchString(symbol)
}

// manyQualifiers matches qualifiers, pointers and references in a row (const is `K`), more than any
// type has.
var manyQualifiers = regexp.MustCompile(`[rVKPROCG]{65}`)
