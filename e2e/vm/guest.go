package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// The scripts in the guest: its first process, that process once the root is mounted, and
// the one that runs the checks.
var (
	//go:embed init.sh
	initScript string
	//go:embed main.sh
	mainScript string
	//go:embed checks.sh
	checksScript string
)

// writeInput writes the drive that the guest unpacks at /vm.
func writeInput(w io.Writer, files map[string][]byte, dirs map[string]string) error {
	t := tar.NewWriter(w)
	add := func(name string, text []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(text))}); err != nil {
			return err
		}
		_, err := t.Write(text)
		return err
	}
	for name, text := range files {
		if err := add(name, text); err != nil {
			return err
		}
	}
	for name, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			below, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return add(filepath.Join(name, below), text)
		})
		if err != nil {
			return err
		}
	}
	return t.Close()
}

// checkList is the part of a script that runs checks.
func checkList(list []check) []byte {
	var b bytes.Buffer
	for _, c := range list {
		fmt.Fprintf(&b, "check %s %d /vm/%s", c.name, int(c.limit.Seconds()), c.dir)
		for _, word := range c.command {
			fmt.Fprintf(&b, " '%s'", strings.ReplaceAll(word, "'", `'\''`))
		}
		fmt.Fprintln(&b)
	}
	return b.Bytes()
}

// environment is the environment of the guest's processes, as lines of a shell.
func environment(home, cache string, patience int) []byte {
	return fmt.Appendf(nil, `export PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
export HOME='%s' TTMEM_CACHE='%s' TTMEM_BINARY=/vm/ttmem TTMEM_TEST_PATIENCE=%d
`, home, cache, patience)
}

// result is the outcome of a check that ran.
type result struct {
	status, seconds int
	output          string
}

// readOutput reads the guest's output from its drive. If the guest was interrupted, the
// checks before are there.
func readOutput(drive []byte) (version string, results map[string]*result, whole bool) {
	results = make(map[string]*result)
	for {
		line, rest, found := bytes.Cut(drive, []byte("\n"))
		if !found {
			return version, results, false
		}
		words := strings.Fields(string(line))
		if len(words) == 0 {
			return version, results, false
		}
		switch words[0] {
		case "kernel":
			version = versionOf(words)
		case "check":
			var name string
			var size int
			r := new(result)
			if n, _ := fmt.Sscanf(string(line), "check %s %d %d %d", &name, &r.status, &r.seconds, &size); n != 4 || size > len(rest) {
				return version, results, false
			}
			r.output, rest = string(rest[:size]), rest[size:]
			results[name] = r
		case "end":
			return version, results, true
		default:
			return version, results, false
		}
		drive = rest
	}
}

// versionOf extracts the package's version from the banner of a Debian kernel: "… Debian
// 6.12.107-1 (2026-01-02)".
func versionOf(words []string) string {
	for i, word := range words[:len(words)-1] {
		if word == "Debian" {
			return words[i+1]
		}
	}
	return cmp.Or(strings.Join(words[1:], " "), "unknown")
}
