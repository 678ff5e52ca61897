// Command alloy reads a configuration with Grafana Alloy's own parser, and prints its components. It
// is a module of its own, so that ttmem does not depend on Alloy.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/alloy/syntax/ast"
	"github.com/grafana/alloy/syntax/parser"
)

func main() {
	text, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = list(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func list(text []byte) error {
	f, err := parser.ParseFile(os.Args[1], text)
	if err != nil {
		return err
	}
	for _, one := range f.Body {
		if block, ok := one.(*ast.BlockStmt); ok {
			fmt.Println(block.GetBlockName(), block.Label)
		}
	}
	return nil
}
