package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestInput(t *testing.T) {
	dir := t.TempDir()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(dir, "deep"), 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, "deep", "a"), []byte("text of a"), 0o644)))
	var drive bytes.Buffer
	qt.Assert(t, qt.IsNil(writeInput(&drive, map[string][]byte{"list": []byte("check")}, map[string]string{"e2e": dir})))
	got := map[string]string{}
	for r := tar.NewReader(&drive); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		qt.Assert(t, qt.IsNil(err))
		text, err := io.ReadAll(r)
		qt.Assert(t, qt.IsNil(err))
		got[h.Name] = string(text)
	}
	qt.Check(t, qt.DeepEquals(got, map[string]string{"list": "check", "e2e/deep/a": "text of a"}))
}

func TestCheckListIsQuoted(t *testing.T) {
	c := check{name: "late", dir: "e2e", command: []string{"/vm/e2e.test", "-test.run=^it's$"}, limit: 90e9}
	qt.Check(t, qt.Equals(string(checkList([]check{c})), `check late 90 /vm/e2e '/vm/e2e.test' '-test.run=^it'\''s$'`+"\n"))
}

func TestOutput(t *testing.T) {
	const kernel = "kernel #1 SMP PREEMPT_DYNAMIC Debian 6.12.107-1 (2026-01-02)\n"
	const doctor = "check doctor 1 12 9\nno end\nx\n"
	for name, c := range map[string]struct {
		drive   string
		checks  int
		version string
		whole   bool
	}{
		"whole":                  {kernel + doctor + "check late 0 3 0\nend\n\x00\x00", 2, "6.12.107-1", true},
		"interrupted after one":  {kernel + doctor + "\x00\x00\x00", 1, "6.12.107-1", false},
		"interrupted within one": {kernel + "check doctor 1 12 9\nno", 0, "6.12.107-1", false},
		"empty":                  {"\x00\x00", 0, "", false},
		"another distribution's": {"kernel #2 SMP\nend\n", 0, "#2 SMP", true},
	} {
		t.Run(name, func(t *testing.T) {
			version, results, whole := readOutput([]byte(c.drive))
			qt.Check(t, qt.Equals(version, c.version))
			qt.Check(t, qt.HasLen(results, c.checks))
			qt.Check(t, qt.Equals(whole, c.whole))
			if c.checks > 0 {
				qt.Check(t, qt.Equals(*results["doctor"], result{1, 12, "no end\nx\n"}))
			}
		})
	}
}
