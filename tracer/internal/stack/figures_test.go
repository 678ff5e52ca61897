package stack

import (
	"testing"
	"time"
	"unsafe"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/host"
)

// TestFiguresOfTTNN logs the cost of reading the code of a process that runs ttnn. The
// limits are 0.5 s for the first process, 0.1 s once its tables are loaded, and 12 MB of
// tables.
func TestFiguresOfTTNN(t *testing.T) {
	p, _ := tracetest.TTNN(t, "0.81.1", "loop.py", "1000", "2")
	p.Tell(t, "go")
	for p.Line(t) != "ready" { // its device is open
	}
	pid := p.Process.Pid
	took := func(what string, do func()) time.Duration { t.Helper(); return tracetest.Took(t, what, do) }
	// by a trace that does not know the process yet
	tr := knowing(t, nil, sleeper(t))
	s := tr.Spaces
	_, err := tr.objs.AddProcess(pid, 0)
	qt.Assert(t, qt.IsNil(err))
	var code []host.Mapping
	var mappings []codeMapping
	took("reading its mappings", func() { code, err = new(host.Proc).CodeMappings(pid) })
	qt.Assert(t, qt.IsNil(err))
	took("opening the files", func() { mappings = s.files.open(pid, code, nil) })
	files := make(map[*codeFile]bool)
	for _, m := range mappings {
		files[m.file] = true
	}
	var tables []*unwind.Table
	rows, words := 0, 0
	took("building their rows, one file after the other", func() {
		for f := range files {
			if f.elf != nil {
				if table, err := unwind.Build(f.elf, nil); err == nil {
					tables = append(tables, table)
					rows += len(table.Rows)
					words += len(table.Index) + len(table.Rows)
				}
			}
		}
	})
	first := took("first: publishing all to the kernel", func() { know(tr, pid) })
	generation := s.byPID[pid].newest.generation
	took("again, nothing new", func() { know(tr, pid) })
	qt.Check(t, qt.Equals(s.byPID[pid].newest.generation, generation), qt.Commentf("an unchanged process is published again"))
	s.Forget(s.byPID[pid].program)
	tr.Settle()
	cached := took("tables loaded, process new", func() { know(tr, pid) })

	chunks := chunksOf(s.rows.tables)
	t.Logf("%d mappings of %d files, %d of them with rows: %d rows in %.1f MB of tables", len(mappings), len(files), len(tables), rows, float64(4*words)/1e6)
	kernel := chunks*chunkWords*4 + len(s.rows.tables.numbers)*8 + int(unsafe.Sizeof(bpf.KernelSpace{}))
	t.Logf("the kernel has %d chunks of 16 KiB and %d rules: with the space %.1f MB", chunks, len(s.rows.tables.numbers), float64(kernel)/1e6)
	t.Logf("first %v, cached %v", first, cached)
	qt.Check(t, qt.IsTrue(kernel <= 12e6))
}
