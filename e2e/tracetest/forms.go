package tracetest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"ttmem/e2e/rig"
)

// Long selects the long forms of the tests.
var Long = flag.Bool("long", false, "run the long forms of tests")

// Many is how often a test tries something, by the form that runs.
func Many(short, long int) int {
	if *Long {
		return long
	}
	return short
}

// The values of the flag -releases.
const (
	newest = "newest"
	older  = "older"
	every  = "all"
)

var tested = newest

func init() {
	flag.Func("releases", "the `releases` of ttnn on which tests run programs: newest, older or all (default newest)", setTested)
}

func setTested(value string) error {
	if value != newest && value != older && value != every {
		return fmt.Errorf("want %s, %s or %s", newest, older, every)
	}
	tested = value
	return nil
}

// Tests reports whether tests run programs on a release of ttnn, "" for the newest one. With -releases older only those
// tests run that call it themselves: see releaseTests.
func Tests(release string) bool {
	return tested == every || (release == "" || release == rig.DefaultVersion) == (tested == newest)
}

var errNone = errors.New("no test of this package calls tracetest.Tests, so -releases older would run none")

// releaseTests returns a pattern for the tests of a package that call Tests. The others have nothing to do with older
// releases, and would repeat what they do on the newest one.
func releaseTests(dir string) (pattern string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		return "", err
	}
	var names []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		for _, function := range strings.Split(string(text), "\nfunc ")[1:] {
			if !strings.Contains(function, "tracetest.Tests(") {
				continue
			}
			name, _, _ := strings.Cut(function, "(")
			if !strings.HasPrefix(name, "Test") {
				return "", fmt.Errorf("%s: %s calls tracetest.Tests: its tests must do that themselves, or -releases older leaves them out", file, name)
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "", errNone
	}
	return "^(" + strings.Join(names, "|") + ")$", nil
}
