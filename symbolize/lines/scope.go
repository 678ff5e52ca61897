package lines

import (
	"debug/dwarf"
	"strings"

	"ttmem/symbolize"
)

// describe returns the names of the function that an entry describes.
func (d *debugInfo) describe(at dwarf.Offset) (f symbolize.Function) {
	named := at
	for range 8 { // from a call to the function, from there to its declaration
		e := d.entry(at)
		if e == nil {
			break
		}
		for _, attr := range []dwarf.Attr{dwarf.AttrLinkageName, mipsLinkageName} {
			if f.Symbol, _ = e.Val(attr).(string); f.Symbol != "" {
				f.Name = symbolize.ShortName(f.Symbol)
				return f
			}
		}
		if f.Name == "" {
			f.Name, _ = e.Val(dwarf.AttrName).(string)
			named = at
		}
		origin, ok := e.Val(dwarf.AttrAbstractOrigin).(dwarf.Offset)
		if !ok {
			origin, ok = e.Val(dwarf.AttrSpecification).(dwarf.Offset)
		}
		if !ok {
			break
		}
		at = origin
	}
	if f.Name != "" {
		f.Name = d.qualified(named, f.Name)
	}
	return f
}

// mipsLinkageName is the linkage name before DWARF 4.
const mipsLinkageName dwarf.Attr = 0x2007

// qualified puts the names of an entry's scopes before its name. GCC has no mangled names
// for file-local functions, including lambdas.
func (d *debugInfo) qualified(at dwarf.Offset, name string) string {
	var outer dwarf.Offset
	for _, u := range d.units {
		if u.root <= at && at < u.end {
			outer = d.load(u).scopes[at]
		}
	}
	e := d.entry(outer)
	if outer == 0 || e == nil {
		return name
	}
	var scope string
	if e.Tag == dwarf.TagSubprogram {
		scope = d.describe(outer).Name
	} else {
		scope = d.qualified(outer, scopeName(e))
	}
	switch {
	case scope == "":
		return name
	case name == "operator()" && strings.HasSuffix(scope, unnamed):
		return strings.TrimSuffix(scope, unnamed) + "{lambda}"
	}
	return scope + "::" + name
}

// unnamed is the name of a class without a name, such as that of a lambda.
const unnamed = "{unnamed}"

// scopeName returns the short name of a namespace or class.
func scopeName(e *dwarf.Entry) string {
	name, _ := e.Val(dwarf.AttrName).(string)
	switch {
	case name == "" && e.Tag == dwarf.TagNamespace:
		return "(anonymous)"
	case name == "", strings.HasPrefix(name, "<lambda"): // GCC's name for the class of a lambda
		return unnamed
	}
	name, _, _ = strings.Cut(name, "<") // template arguments
	return symbolize.PlainName(name)
}
