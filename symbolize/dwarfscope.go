package symbolize

import (
	"cmp"
	"slices"
	"strings"
)

// scopeOf says what an entry stands in: a namespace, a class or a function. GCC
// gives no mangled names to what only one file sees, lambdas among them: for
// those a name is put together from their scopes.
type scopeOf struct {
	entry, scope uint32 // offsets in the unit
}

// maxScopes is how many entries of a unit are remembered with their scopes.
const maxScopes = 1 << 18 // 2 MB

// The tags of scopes (DWARF 5, 7.5.4).
const (
	tagClass     = 0x02
	tagStructure = 0x13
	tagUnion     = 0x17
	tagNamespace = 0x39
)

func isScope(tag uint64) bool {
	switch tag {
	case tagClass, tagStructure, tagUnion, tagNamespace, tagSubprogram:
		return true
	}
	return false
}

// addScope remembers what an entry stands in.
func (l *loadedUnit) addScope(entry, scope uint64) {
	at, in := entry-l.unit.start, scope-l.unit.start
	if scope != 0 && at < 1<<32 && len(l.scopes) < maxScopes {
		l.scopes = append(l.scopes, scopeOf{uint32(at), uint32(in)})
	}
}

// maxScopeDepth is how many scopes of a name are shown, the inner ones.
const maxScopeDepth = 16

// qualified puts the names of the scopes of an entry before its name.
func (d *debugInfo) qualified(at uint64, name string, depth int) string {
	u := d.unitOf(at)
	if u == nil || depth == maxScopeDepth || !d.work(1000) {
		return name
	}
	l := d.load(u)
	i, ok := slices.BinarySearchFunc(l.scopes, uint32(at-u.start), func(s scopeOf, a uint32) int {
		return cmp.Compare(s.entry, a)
	})
	if !ok {
		return name
	}
	outer := u.start + uint64(l.scopes[i].scope)
	c := d.info.cursor(outer, u.end)
	a := d.tableOf(u).get(c.uleb())
	if a == nil {
		return name
	}
	e := c.attributes(a, u)
	if c.bad {
		return name
	}
	var scope string
	switch {
	case a.tag == tagSubprogram:
		scope = d.describe(outer, depth+1).Name
	default:
		scope = d.scopeName(u, a.tag, &e)
		scope = d.qualified(outer, scope, depth+1)
	}
	switch {
	case scope == "":
		return name
	case name == "operator()" && strings.HasSuffix(scope, unnamed):
		return strings.TrimSuffix(scope, unnamed) + "{lambda}"
	}
	return scope + "::" + name
}

// unnamed is a class without a name, such as that of a lambda.
const unnamed = "{unnamed}"

// scopeName is the name of a namespace or class, in the form for people.
func (d *debugInfo) scopeName(u *unit, tag uint64, e *entry) string {
	name := d.string(u, e.name, &d.info)
	switch {
	case name == "" && tag == tagNamespace:
		return "(anonymous)"
	case name == "":
		return unnamed
	case strings.HasPrefix(name, "<lambda"): // GCC's name for the class of a lambda
		return unnamed
	}
	if i := strings.IndexByte(name, '<'); i > 0 { // template arguments
		name = name[:i]
	}
	return cut(plainName(name), maxShort)
}
