package flags

import (
	"cmp"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/name"
	"ttmem/tracer/host"
)

// Open opens a file named by a flag for reading.
func Open(flag, path string) (*os.File, error) {
	f, err := os.Open(path)
	if err == nil {
		var info os.FileInfo
		if info, err = f.Stat(); err == nil && !info.IsDir() {
			return f, nil
		}
		f.Close()
		err = cmp.Or(err, error(unix.EISDIR))
	}
	return nil, fmt.Errorf("%s %s: %w; name a file that can be read", flag, path, host.WithoutPath(err))
}

// ReadRules reads the file of --rules; for "" it returns nil.
func ReadRules(path string) (*name.Rules, error) {
	if path == "" {
		return nil, nil
	}
	f, err := Open("--rules", path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rules, err := name.ReadRules(path, f)
	if err != nil {
		return nil, fmt.Errorf("--rules %w", err)
	}
	return rules, nil
}
