package flags

import (
	"fmt"
	"os"

	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/output"
)

// ReadRules reads the file of --rules; the rules of "" are nil.
func ReadRules(path string) (*name.Rules, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--rules %s: %w", path, output.Pathless(err))
	}
	defer f.Close()
	rules, err := name.ReadRules(path, f)
	if err != nil {
		return nil, fmt.Errorf("--rules %w", err)
	}
	return rules, nil
}
