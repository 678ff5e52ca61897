package sqlite

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// A database that is written.
type database struct{ *pagetest.Export[*Writer] }

func create(t testing.TB) *database {
	t.Helper()
	return &database{pagetest.NewExport(t, "model.db", New)}
}

// ask gives what Debian's sqlite3 prints.
func (d *database) ask(args ...string) string {
	d.T.Helper()
	cmd := exec.Command("sqlite3", append([]string{"-bail", "-safe", d.Path}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	qt.Assert(d.T, qt.IsNil(err), qt.Commentf("%s", &errs))
	return string(out)
}

// everything makes events of all kinds.
func (d *database) everything() {
	capacities := pagetest.Capacities
	matmul, add := pagetest.Stack("matmul", "forward", 12), pagetest.Stack("add", "forward", 13)
	d.Event(event.Event{
		Kind: event.ProcessStart, PID: 4242, Comm: "python3", UID: 1000,
		Start: &event.Start{Command: "python3 model.py", Library: "/lib/libtt_metal.so", Release: "0.81.1", Container: "c0ffee", Pod: "ab-cd", ContainerPID: 7},
	})
	d.Event(event.Event{Kind: event.DeviceOpen, PID: 4242, Allocator: 1, Devices: []int{0, 1}, Open: &event.Open{Board: "n300", Arch: "wormhole_b0", Capacities: capacities}, Mesh: true})
	d.Event(pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x1000, 4096, matmul, 0, 1))
	d.Event(pagetest.Buffer(event.Alloc, 2, event.L1, 0x9000, 512, add, 1))
	single := pagetest.Buffer(event.Alloc, 3, event.L1, 0xa000, 256, add, 1)
	single.PerCore, single.Cores, single.Banks = true, []event.CoreRange{{X0: 1, Y0: 1, X1: 2, Y1: 2}}, 4
	d.Event(single)
	early := pagetest.Buffer(event.Alloc, 4, event.DRAM, 0x3000, 4096, nil, 0, 1)
	early.BeforeAttach = true
	d.Event(early)
	for _, path := range []string{"first", "model.layers[0].wq\x1b[2J", ""} { // the last one was not found again
		d.Event(event.Event{Kind: event.Owner, PID: 4242, BufferID: 4, Cause: path, Message: "bf16[32,64] TILE"})
	}
	d.Event(event.Event{Kind: event.Owner, PID: 4242, BufferID: 99, Cause: "freed"})
	d.Event(event.Event{Kind: event.Mark, Cause: "warm", UID: 1000})
	for range 2 { // the second time it is the same place
		d.Event(event.Event{Kind: event.CBAlloc, PID: 4242, ProgramID: 9, Devices: []int{0, 1}, Address: 0x8100, SizeBytes: 2048,
			Cores: []event.CoreRange{{X1: 7, Y1: 6}}, StaticKind: event.CircularBuffer, Stack: matmul})
	}
	d.Event(event.Event{Kind: event.CBAlloc, PID: 4242, ProgramID: 9, Devices: []int{0, 1}, Address: 0x9100, SizeBytes: 512,
		Cores: []event.CoreRange{{X1: 1, Y1: 0}}, StaticKind: event.Scratchpad, Stack: matmul})
	d.Event(event.Event{Kind: event.KernelLoad, PID: 4242, ProgramID: 9, Devices: []int{0, 1}, SizeBytes: 9000, BytesPerBank: 3000, Stack: matmul})
	trace := func(kind event.Kind) {
		d.Event(event.Event{Kind: kind, PID: 4242, TID: 4243, ProgramID: 6, Devices: []int{0, 1}, Stack: add})
	}
	trace(event.TraceBegin)
	for range 3 {
		d.Event(event.Event{Kind: event.ProgramRun, PID: 4242, TID: 4243, ProgramID: 9, Devices: []int{0, 1}, Stack: matmul})
	}
	trace(event.TraceEnd)
	trace(event.TraceReplay) // three runs more
	trace(event.TraceRelease)
	failed := pagetest.Buffer(event.AllocFailed, 0, event.DRAM, 0, 1<<20, add, 0, 1)
	failed.Reason, failed.Message = event.ReasonOutOfMemory, "Out of Memory:\nnot enough"
	d.Event(failed)
	d.Event(pagetest.Buffer(event.Free, 1, event.DRAM, 0, 0, nil))
	d.Event(pagetest.Buffer(event.Free, 1, event.DRAM, 0, 0, nil))                    // a double free
	d.Event(pagetest.Buffer(event.Alloc, 2, event.L1, 0xb000, 512, add, 1))           // the end of the one before was lost
	d.Event(event.Event{Kind: event.Lost, PID: 4242, Count: 3, Cause: "ring buffer"}) // as reported here
	d.Event(event.Event{Kind: event.Lost, Count: 1, Cause: "unknown"})
	// dataflow buffers end, with the scratchpads
	d.Event(event.Event{Kind: event.CBFree, PID: 4242, ProgramID: 9, Devices: []int{1}, StaticKind: event.DataflowBuffer})
	d.Event(event.Event{Kind: event.DeviceClose, PID: 4242, Allocator: 1, Devices: []int{0, 1}})
	d.Event(event.Event{Kind: event.ProcessExit, PID: 4242, ExitStatus: 3})
	d.Event(event.Event{Kind: event.ProcessStart, PID: 4242, Comm: "again"})
	d.Event(pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x1000, 4096, add, 0))
}

// tables are all tables, in the order of the schema.
func (d *database) tables() []string {
	return strings.Fields(d.ask("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"))
}

func TestTablesHaveAllEvents(t *testing.T) {
	d := create(t)
	d.everything()
	d.Close()
	var text strings.Builder
	for _, table := range d.tables() {
		fmt.Fprintf(&text, "%s\n%s\n", table, d.ask("-header", "-nullvalue", "NULL", "SELECT * FROM "+table))
	}
	golden.Check(t, "tables.golden", text.String())
	qt.Check(t, qt.Equals(d.ask("PRAGMA integrity_check; PRAGMA foreign_key_check"), "ok\n"))
}

// TestARecordingThatContinuesAnother begins with what is live.
func TestARecordingThatContinuesAnother(t *testing.T) {
	before := create(t)
	before.everything()
	before.Event(event.Event{Kind: event.CBAlloc, PID: 4242, ProgramID: 5, Devices: []int{0}, Address: 0x8100, SizeBytes: 64,
		Cores: []event.CoreRange{{}}, StaticKind: event.DataflowBuffer})
	d := create(t)
	d.Apply(before.State.Checkpoint())
	d.Now = before.Now
	d.Event(event.Event{Kind: event.CBFree, PID: 4242, ProgramID: 5})
	d.Close()
	qt.Check(t, qt.Equals(d.ask("SELECT pid, name, buffer_id, birth_ns, birth_event, death_ns FROM buffers JOIN processes USING (process)"),
		"4242|again|1|-1000000||\n"))
	qt.Check(t, qt.Equals(d.ask("SELECT chip, kind, birth_ns, death_ns FROM circular_buffers"), "0|dataflow_buffer|0|1000000\n"))
}

func TestNoEvents(t *testing.T) {
	d := create(t)
	d.Close()
	qt.Check(t, qt.Equals(d.ask("SELECT count(*) FROM events"), "0\n"))
}

// hostile is a name that ends a string of SQL, and has controls of a terminal.
const hostile = "'); DROP TABLE buffers;--\"\x1b]0;owned\x07\x00\xff\u202e日本"

func TestHostileNamesAreValues(t *testing.T) {
	d := create(t)
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: hostile, File: "/" + hostile, Line: 1, Module: hostile}})
	d.Event(event.Event{
		Kind: event.ProcessStart, PID: 1, Comm: hostile, Start: &event.Start{Command: hostile, Library: hostile, Release: hostile, Container: hostile, Pod: hostile},
	})
	d.Event(event.Event{Kind: event.DeviceOpen, PID: 1, Devices: []int{0}, Open: &event.Open{Board: hostile, Arch: hostile}})
	for _, e := range []event.Event{
		{Kind: event.Alloc, BufferID: 1 << 63, Address: 1<<64 - 1, SizeBytes: 1<<64 - 1, BytesPerBank: 1 << 62, Banks: 1<<32 - 1, Devices: []int{0}},
		{Kind: event.AllocFailed, Message: hostile, Region: event.L1, Reason: event.ReasonOutOfMemory},
		{Kind: event.Mark, Cause: hostile}, {Kind: event.Lost, Cause: hostile, Count: 1 << 63},
	} {
		e.PID, e.Stack, e.Comm = 1, stack, hostile
		d.Event(e)
	}
	d.Close()
	for _, column := range []string{
		"name, command, library, release, container, pod FROM processes", "board, arch FROM chips", "message FROM failures", "name FROM marks",
		"cause FROM losses", "function, file, module FROM frames", "name, component FROM stacks",
	} {
		text := d.ask("-separator", "\n", "SELECT "+column)
		for line := range strings.Lines(text) {
			qt.Check(t, qt.StringContains(line, `'); DROP TABLE buffers;--"]0;owned`), qt.Commentf("%s", column))
			qt.Check(t, qt.StringContains(line, "日本"))
			qt.Check(t, qt.Equals(event.Printable(line), strings.ReplaceAll(line, "\n", " ")))
		}
	}
}

// TestRowsAgreeWithTheState: the live buffers at the end, and the peak of each region.
func TestRowsAgreeWithTheState(t *testing.T) {
	for seed := range uint64(3) {
		d := create(t)
		random := rand.New(rand.NewPCG(seed, 1))
		sets := [][]int{{0}, {1}, {0, 1}}
		open := func(pid int) {
			d.Event(event.Event{Kind: event.DeviceOpen, PID: pid, Allocator: 1, Devices: []int{0, 1}, Open: &event.Open{Capacities: pagetest.Capacities}})
		}
		open(1)
		open(2)
		for range 2000 {
			pid, id := 1+random.IntN(2), uint64(random.IntN(40))
			switch random.IntN(200) {
			case 0:
				d.Event(event.Event{Kind: event.DeviceClose, PID: pid, Allocator: 1, Devices: []int{0, 1}})
				open(pid)
			case 1:
				d.Event(event.Event{Kind: event.ProcessExit, PID: pid, ExitStatus: event.UnknownStatus})
				open(pid)
			default:
				kind := event.Alloc
				if random.IntN(2) == 0 {
					kind = event.Free
				}
				e := pagetest.Buffer(kind, id, event.DRAM, (64*uint64(pid)+id)*4096, 64*uint64(1+random.IntN(64)), nil, sets[random.IntN(3)]...)
				e.PID = pid
				d.Event(e)
			}
		}
		d.Close()
		var live strings.Builder
		for _, b := range d.State.Buffers() {
			fmt.Fprintf(&live, "%d|%d|%d|%d\n", b.PID, b.BufferID, b.SinceNs-1000*pagetest.Second-1e6, b.BytesPerBank*uint64(b.Banks))
		}
		qt.Check(t, qt.Equals(d.ask(`SELECT pid, buffer_id, birth_ns, allocated_bytes FROM buffers JOIN processes USING (process)
			WHERE death_ns IS NULL ORDER BY pid, birth_ns`), live.String()))
		qt.Check(t, qt.Equals(d.ask(`WITH changes AS (
				SELECT chip, birth_ns AS time_ns, allocated_bytes AS bytes FROM buffers JOIN chip_sets USING (chip_set)
				UNION ALL SELECT chip, death_ns, -allocated_bytes FROM buffers JOIN chip_sets USING (chip_set) WHERE death_ns IS NOT NULL),
			uses AS (SELECT chip, time_ns, sum(bytes) OVER (PARTITION BY chip ORDER BY time_ns) AS bytes FROM changes)
			SELECT chip, time_ns, max(bytes) FROM uses GROUP BY chip`),
			d.ask("SELECT chip, peak_ns, peak_bytes FROM regions WHERE region = 'DRAM'")))
	}
}

// A file that cannot be written is an error, and nothing is left.
func TestAFullDisk(t *testing.T) {
	temporary := filepath.Join(t.TempDir(), "with %41?#")
	qt.Assert(t, qt.IsNil(os.Mkdir(temporary, 0o700)))
	t.Setenv("TMPDIR", temporary)
	d := create(t)
	d.everything()
	left, err := os.ReadDir(temporary) // also if this process is killed
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(left, 0))
	qt.Assert(t, qt.IsNil(d.Out.Close()))
	qt.Check(t, qt.ErrorIs(d.Writer.Close(), os.ErrClosed))
	t.Setenv("TMPDIR", filepath.Join(temporary, "missing"))
	_, err = New(nil, nil)
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}

// BenchmarkMillion exports a million events of a loop: buffers, and runs of programs.
func BenchmarkMillion(b *testing.B) {
	var stacks []*event.Stack
	for line := range 500 {
		stacks = append(stacks, pagetest.Stack("add", "forward", line+1))
	}
	for b.Loop() {
		d := create(b)
		d.Event(event.Event{Kind: event.ProcessStart, PID: 4242, Comm: "python3"})
		const live, loops = 5000, 335_000
		for i := range uint64(loops) {
			d.Event(pagetest.Buffer(event.Alloc, i, event.DRAM, i%live*4096, 4096, stacks[i%500], 0, 1))
			d.Event(event.Event{Kind: event.ProgramRun, PID: 4242, ProgramID: i % 200, Devices: []int{0, 1}, Stack: stacks[i%500]})
			if i >= live {
				d.Event(pagetest.Buffer(event.Free, i-live, event.DRAM, 0, 0, nil))
			}
		}
		d.Close()
		info, err := os.Stat(d.Path)
		qt.Assert(b, qt.IsNil(err))
		b.ReportMetric(float64(info.Size())/1e6, "MB")
		qt.Assert(b, qt.Equals(d.ask("PRAGMA quick_check; SELECT count(*) FROM events"), "ok\n1000001\n"))
	}
}
