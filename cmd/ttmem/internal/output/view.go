// Package output writes the files that flags name, which are either complete or absent, and prints
// pages.
package output

import (
	"fmt"
	"io"
	"os"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/host"
)

// A View is printed as text or as JSON.
type View interface {
	WriteText(w io.Writer, layout page.Layout) error
	// Document declares the JSON document: see package document.
	Document() any
}

// Columns, if it is not nil, makes JSON documents have their large lists as columns, of fields that it selects by their
// keys: see document.WriteColumns.
var Columns func(key string) bool

// Print prints a view to standard output, as JSON with the supplement. An error contains the name.
func Print(v View, format term.Format, add *page.Supplement, name string) error {
	return PrintTo(os.Stdout, v, format, add, name)
}

// PrintTo is Print with a file for text.
func PrintTo(to *os.File, v View, format term.Format, add *page.Supplement, name string) (err error) {
	switch {
	case format.JSON && Columns != nil:
		err = document.WriteColumns(os.Stdout, v.Document(), add, Columns)
	case format.JSON:
		err = document.Write(os.Stdout, v.Document(), add)
	default:
		err = v.WriteText(to, format.LayoutFor(to))
	}
	if err != nil {
		return fmt.Errorf("writing the %s: %w", name, host.WithoutPath(err))
	}
	return nil
}
