package kernel

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestTheLeastMemoryLimitOfAllCgroupsCounts(t *testing.T) {
	root := t.TempDir()
	for path, text := range map[string]string{
		"memory.max":                          "max\n", // a cgroup namespace's root has one
		"a/memory.max":                        "300\n",
		"a/b/memory.max":                      "max\n",
		"memory/memory.limit_in_bytes":        "9223372036854771712\n",
		"memory/docker/memory.limit_in_bytes": "200\n",
	} {
		path = filepath.Join(root, path)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
	}
	for cgroups, want := range map[string]uint64{
		"":                                  math.MaxUint64,
		"0::/\n":                            math.MaxUint64,
		"0::/a\n":                           300,
		"0::/a/b\n":                         300, // the parent's limit is of its children, too
		"0::/../../a/b\n":                   300, // out of a cgroup namespace
		"9:cpu:/docker\n4:memory:/\n0::/\n": 9223372036854771712,
		"4:memory:/docker\n0::/a\n":         200,
		"4:memory:/docker/gone\n":           200,
	} {
		qt.Check(t, qt.Equals(memoryLimit(root, cgroups), want), qt.Commentf("%q", cgroups))
	}
}
