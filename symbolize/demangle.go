package symbolize

import (
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"
)

// Limits of what a name may cost. The longest that the libraries of ttnn have
// is 2,500 bytes mangled, and 200 in the short form.
const (
	maxMangled = 1 << 14
	maxShort   = 512
	maxFull    = 14 // as a power of two: 16 KB
)

// ShortName is the form of a symbol in which people write and read it:
// `ttnn::add`, `std::vector::push_back`, `main::{lambda#1}`. It has neither
// parameters nor template arguments, nor the marks of what compilers made of a
// function (`.cold`, `.part.0`, `[abi:cxx11]`) or of where it was compiled.
// The stub that calls a function in another file is `name@plt`. Names that are
// neither of C++ nor of Rust stay as they are. It is at most 512 bytes long.
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
	case len(symbol) > maxMangled:
	case rust(symbol):
		name = shortRust(symbol)
	case strings.HasPrefix(symbol, "_Z") || strings.HasPrefix(symbol, "_GLOBAL__"):
		name = shortCPP(symbol)
	}
	if name == "" {
		name = withoutClones(symbol)
	}
	return cut(name, maxShort)
}

// FullName is everything that a mangled symbol says: parameters, template
// arguments, qualifiers and the suffixes of clones. Other names, and those whose
// form would be longer than 16 KB, are given back as they are or are cut.
func FullName(symbol string) string {
	plain := withoutVersion(symbol)
	if !manageable(plain) {
		return cut(symbol, 1<<maxFull)
	}
	full := demangled(func() (string, error) { return demangle.ToString(plain, demangle.MaxLength(maxFull)) })
	if full == "" {
		return cut(symbol, 1<<maxFull)
	}
	return full
}

// demangled is what f gives, "" if it gives up. The demangler reports malformed
// names as errors; that it panics is not to be expected, and no reason to stop.
func demangled(f func() (string, error)) (name string) {
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

// cut cuts a name that is longer than n bytes.
func cut(name string, n int) string {
	const mark = "…"
	if len(name) <= n {
		return name
	}
	return strings.ToValidUTF8(name[:n-len(mark)], "") + mark
}

// withoutVersion cuts off the version of a symbol of the C library:
// `memcpy@@GLIBC_2.14`, as symbol tables of unstripped libraries have it.
func withoutVersion(symbol string) string {
	if i := strings.IndexByte(symbol, '@'); i > 0 {
		return symbol[:i]
	}
	return symbol
}

// clones are the suffixes that GCC and clang give to parts and copies of a
// function, whatever the language: gcc/cgraphclones.cc, llvm's HotColdSplitting
// and ThinLTO.
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
