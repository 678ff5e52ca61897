package main

import (
	"fmt"
	"io"
	"os"

	"ttmem/cmd/ttmem/output"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/term"
)

// A view is printed as text or as JSON.
type view interface {
	WriteText(w io.Writer, layout page.Layout) error
	WriteJSON(w io.Writer) error
}

// printView prints a view to standard output. An error names it.
func printView(v view, json bool, name string) (err error) {
	if json {
		err = v.WriteJSON(os.Stdout)
	} else {
		err = v.WriteText(os.Stdout, term.LayoutFor(os.Stdout))
	}
	if err != nil {
		return fmt.Errorf("writing the %s: %w", name, output.Pathless(err))
	}
	return nil
}
