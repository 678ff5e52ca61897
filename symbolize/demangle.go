package symbolize

import "github.com/ianlancetaylor/demangle"

// Demangle is the short readable form of a mangled C++ or Rust name: without
// parameters, template arguments and the marks of compiler-made copies. Other
// names are given back as they are.
func Demangle(name string) string {
	return demangle.Filter(name, demangle.NoParams, demangle.NoTemplateParams, demangle.NoClones,
		demangle.NoEnclosingParams)
}
