package unwind

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/symbolize"
)

// TestVDSO builds the table of a file that exists in memory only.
func TestVDSO(t *testing.T) {
	maps, err := os.ReadFile("/proc/self/maps")
	qt.Assert(t, qt.IsNil(err))
	var start, end int64
	for line := range strings.Lines(string(maps)) {
		if strings.HasSuffix(line, "[vdso]\n") {
			_, err := fmt.Sscanf(line, "%x-%x", &start, &end)
			qt.Assert(t, qt.IsNil(err))
		}
	}
	if start == 0 {
		t.Skip("the kernel gave this process no vdso")
	}
	mem, err := os.Open("/proc/self/mem")
	qt.Assert(t, qt.IsNil(err))
	defer mem.Close()
	b := make([]byte, end-start)
	_, err = mem.ReadAt(b, start)
	qt.Assert(t, qt.IsNil(err))

	e, err := symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	table, err := Build(e, nil)
	qt.Assert(t, qt.IsNil(err))
	s, ok := e.Lookup("__vdso_clock_gettime")
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.Equals(table.Find(s.Addr), entry))

	path := filepath.Join(t.TempDir(), "vdso")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))
	compare(t, path, readelf(t, path))

	// without section headers the segment is used
	clear(b[40:48])
	clear(b[60:64])
	e, err = symbolize.New(bytes.NewReader(b), int64(len(b)))
	qt.Assert(t, qt.IsNil(err))
	_, ok = e.EHFrame()
	qt.Assert(t, qt.IsFalse(ok))
	bare, err := Build(e, nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(bare, table))
}
