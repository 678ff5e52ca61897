// Package docs has the pages of the documentation, for ttmem help.
// It is not part of ttmem's Go library: it changes without notice.
package docs

import (
	"embed"
	"path"
	"strings"
)

//go:embed *.md
var files embed.FS

// Page returns a page by its name: leaks, leaks.md or docs/leaks.md.
func Page(name string) (text string, ok bool) {
	name = strings.TrimPrefix(name, "docs/")
	if path.Ext(name) == "" {
		name += ".md"
	}
	b, err := files.ReadFile(name)
	return string(b), err == nil
}

// Pages returns the names of all pages, without .md, and their titles.
func Pages() (names, titles []string) {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic(err) // they are part of the program
	}
	for _, e := range entries {
		text, _ := Page(e.Name())
		title, _, _ := strings.Cut(text, "\n")
		names, titles = append(names, strings.TrimSuffix(e.Name(), ".md")), append(titles, strings.TrimPrefix(title, "# "))
	}
	return names, titles
}
