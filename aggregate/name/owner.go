package name

import (
	"regexp"
	"slices"
	"strings"
)

// FoldOwner returns the path of an owner without its indices, so that all layers of a model are
// one: model.layers[*].wq.
func FoldOwner(path string) string {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(path, "[")
		if !found {
			b.WriteString(path)
			return b.String()
		}
		b.WriteString(before)
		b.WriteByte('[')
		if digits := len(rest) - len(strings.TrimLeft(rest, "0123456789")); digits > 0 && digits < len(rest) && rest[digits] == ']' {
			b.WriteByte('*')
			rest = rest[digits:]
		}
		path = rest
	}
}

// keys are the indices and keys in the paths of owners, as Python writes them.
var keys = regexp.MustCompile(`\[(?:-?\d+|…|'(?:[^'\\]|\\.)*')\]`)

// A Container is what the paths of several owners have in common: m.debug[…]. It has the keys that
// are the same in all of them.
type Container struct {
	parts, keys []string // a key follows each part but the last
}

// ContainerOf returns the container of one path, with all of its keys.
func ContainerOf(path string) Container {
	return Container{keys.Split(path, -1), keys.FindAllString(path, -1)}
}

// Shape returns the same text for paths that differ in keys only.
func (c *Container) Shape() string { return strings.Join(c.parts, "[…]") }

// Add adds a path of the same shape.
func (c *Container) Add(path Container) {
	c.keys = slices.Clone(c.keys)
	for i, key := range path.keys {
		if c.keys[i] != key {
			c.keys[i] = "[…]"
		}
	}
}

// Has reports whether a path of the same shape leads into the container.
func (c *Container) Has(path Container) bool {
	for i, key := range c.keys {
		if key != "[…]" && key != path.keys[i] {
			return false
		}
	}
	return true
}

// String returns the container as a path.
func (c *Container) String() string {
	var b strings.Builder
	for i, part := range c.parts {
		b.WriteString(part)
		if i < len(c.keys) {
			b.WriteString(c.keys[i])
		}
	}
	return b.String()
}
