package main

import (
	"fmt"
	"os"

	"ttmem/aggregate/name"
)

// readRules reads the file of --rules; "": there is none, and the rules are nil.
func readRules(path string) (*name.Rules, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--rules %s: %w", path, pathless(err))
	}
	defer f.Close()
	rules, err := name.ReadRules(path, f)
	if err != nil {
		return nil, fmt.Errorf("--rules %w", err)
	}
	return rules, nil
}
