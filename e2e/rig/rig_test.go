package rig

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// testWriter sends progress to the test's log.
type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

func TestProgramRuns(t *testing.T) {
	env, err := Setup(t.Context(), Options{Progress: testWriter{t}})
	qt.Assert(t, qt.IsNil(err))
	const program = `
import ttnn
device = ttnn.open_device(device_id=0)
a = ttnn.empty([512, 512], ttnn.bfloat16, ttnn.TILE_LAYOUT, device, ttnn.DRAM_MEMORY_CONFIG)
ttnn.add(a, a)
print(ttnn._ttnn.device.GetMemoryView(device, ttnn.BufferType.DRAM).total_bytes_allocated_per_bank)
ttnn.close_device(device)
`
	dir := t.TempDir()
	cmd := env.Command(t.Context(), N150, "-c", program)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	// 256 pages of 2048 bytes on 12 banks are 45056 bytes a bank. The sum is as large and
	// no longer has a name; add leaves its kernel behind.
	qt.Check(t, qt.Matches(strings.TrimSpace(string(out)), `[0-9]{5,6}`))

	left, err := os.ReadDir(dir)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 0))

	var said strings.Builder
	again, err := Setup(t.Context(), Options{Version: env.Version, Python: env.PythonVersion, Progress: &said})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(*again, *env))
	qt.Check(t, qt.Equals(said.String(), "")) // nothing is installed again
}

func TestEnviron(t *testing.T) {
	t.Setenv("TTMEM_CACHE", t.TempDir())
	t.Setenv("LD_LIBRARY_PATH", "/somewhere")
	t.Setenv("TT_METAL_HOME", "/somewhere")
	t.Setenv("CI", "true")
	t.Setenv("TT_LOGGER_LEVEL", "debug")
	t.Setenv("MINE", "kept")

	get := func(version string) map[string]string {
		vars, err := (&Env{Version: version}).Environ(T3000)
		qt.Assert(t, qt.IsNil(err))
		m := map[string]string{}
		for _, kv := range vars {
			name, value, _ := strings.Cut(kv, "=")
			m[name] = value
		}
		return m
	}
	vars := get("0.81.1")
	for _, gone := range []string{"LD_LIBRARY_PATH", "TT_METAL_HOME", "CI", "TT_METAL_SLOW_DISPATCH_MODE"} {
		_, ok := vars[gone]
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s", gone))
	}
	qt.Check(t, qt.Equals(vars["MINE"], "kept"))
	qt.Check(t, qt.Equals(vars["TT_LOGGER_LEVEL"], "debug"))
	desc, err := os.ReadFile(vars["TT_METAL_MOCK_CLUSTER_DESC_PATH"])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(desc), "n300"))

	old := get("0.72.0")
	qt.Check(t, qt.Equals(old["TT_METAL_SLOW_DISPATCH_MODE"], "1"))
	qt.Check(t, qt.Not(qt.Equals(old["TT_METAL_CACHE"], vars["TT_METAL_CACHE"])))

	_, err = (&Env{Version: "0.81.1"}).Environ("n151")
	qt.Check(t, qt.ErrorMatches(err, `no board "n151": .*`))
	qt.Check(t, qt.ErrorMatches((&Env{Version: "0.81.1"}).Command(t.Context(), "n151").Run(), `no board "n151": .*`))
}

func TestExportsAreQuoted(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "it's here")
	t.Setenv("TTMEM_CACHE", cache)
	lines, err := (&Env{Version: "0.81.1", Python: "/x y/bin/python"}).Exports(N150)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(slices.Contains(lines, `export PATH='/x y/bin':"$PATH"`)))
	qt.Check(t, qt.StringContains(strings.Join(lines, "\n"), `it'\''s here/boards/n150.yaml'`))
}

func TestLoadWantsAFinishedInstallation(t *testing.T) {
	dir := t.TempDir()
	python := script(t, dir, "venv/bin/python", "")
	lib := script(t, dir, "lib.so", "")
	_, err := load(dir)
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))

	env := &Env{Version: "0.81.1", Python: python, Library: lib}
	qt.Assert(t, qt.IsNil(env.save(dir)))
	got, err := load(dir)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(*got, *env))

	qt.Assert(t, qt.IsNil(os.Remove(python)))
	_, err = load(dir)
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "lock")
	unlock, err := Lock(t.Context(), path, func() { t.Error("waited without need") })
	qt.Assert(t, qt.IsNil(err))

	ctx, cancel := context.WithCancel(t.Context())
	_, err = Lock(ctx, path, cancel)
	qt.Check(t, qt.ErrorIs(err, context.Canceled))

	second, err := Lock(t.Context(), path, unlock)
	qt.Assert(t, qt.IsNil(err))
	second()
}
