package visualizer

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// capacities have the base addresses of a chip with 4 cores.
var capacities = [event.BankedRegions]event.Capacity{
	event.DRAM:    {Banks: 12, BytesPerBank: 1 << 30, Base: 1 << 20},
	event.L1:      {Banks: 4, BytesPerBank: 1_000_000, Base: 100_000},
	event.L1Small: {Banks: 4, BytesPerBank: 30_000, Base: 1_100_000},
}

// reportOf returns the database of the report of some events, which are a second apart.
func reportOf(t *testing.T, o Options, events ...event.Event) *sql.DB {
	t.Helper()
	for i := range events {
		events[i].TimeNs = uint64(i+1) * 1e9
	}
	play := func(handle func(*event.Event, *aggregate.State)) {
		s := aggregate.New()
		each := s.Completed(func(e *event.Event) { handle(e, s) })
		for _, e := range events {
			each(&e)
		}
	}
	var p Plan
	play(p.Event)
	dir := t.TempDir()
	o.Wall = func(ns uint64) time.Time { return time.Unix(0, int64(ns)).UTC() }
	r, err := New(func(name string) (*os.File, error) { return os.Create(filepath.Join(dir, name)) }, &p, p.Window(0, 0), o)
	qt.Assert(t, qt.IsNil(err))
	play(r.Event)
	qt.Assert(t, qt.IsNil(r.Close()))
	db, err := sql.Open("sqlite", filepath.Join(dir, "db.sqlite"))
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { db.Close() })
	return db
}

// rowsOf returns the rows of a query, each with its values between bars.
func rowsOf(t *testing.T, db *sql.DB, query string) (list []string) {
	t.Helper()
	rows, err := db.Query(query)
	qt.Assert(t, qt.IsNil(err))
	defer rows.Close()
	columns, err := rows.Columns()
	qt.Assert(t, qt.IsNil(err))
	for rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			to[i] = &values[i]
		}
		qt.Assert(t, qt.IsNil(rows.Scan(to...)))
		texts := make([]string, len(values))
		for i, v := range values {
			texts[i] = fmt.Sprint(v)
		}
		list = append(list, strings.Join(texts, "|"))
	}
	return list
}

func opened(chips ...int) event.Event {
	return event.Event{Kind: event.DeviceOpen, PID: 1, Devices: chips, Allocator: 1, Open: &event.Open{Capacities: capacities}}
}

// TestTensorsAreThoseOfKnownOwners: with shape and type, and the operation that allocated them.
func TestTensorsAreThoseOfKnownOwners(t *testing.T) {
	stack := pagetest.Stack("empty", "load", 3)
	alloc := func(id uint64, stack *event.Stack, chips ...int) event.Event {
		e := pagetest.Buffer(event.Alloc, id, event.DRAM, id<<12, 64, stack, chips...)
		e.PID = 1
		return e
	}
	owner := func(id uint64, path, tensor string) event.Event {
		return event.Event{Kind: event.Owner, PID: 1, BufferID: id, Cause: path, Message: tensor}
	}
	before := alloc(3, nil, 0)
	before.BeforeAttach = true
	db := reportOf(t, Options{}, opened(0, 1), before, alloc(1, stack, 0, 1), alloc(2, stack, 0), alloc(4, stack, 1),
		owner(3, "model.wq", "bf16[1,32,32,64] TILE"), owner(1, "x", ""), owner(1, "kv[0]\x1b", "bfp8[8] TILE"), owner(1, "", ""),
		owner(2, "y", "</script>\x1b"), event.Event{Kind: event.Free, PID: 1, BufferID: 2}, owner(2, "late", "late"))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT * FROM tensors"), []string{
		"1|</script>" + event.Printable("\x1b") + "|||<nil>|0|8192|0|0|StorageType.DEVICE",
		"2|Shape([8])|DataType.BFLOAT8_B|Layout.TILE|<nil>|0|4096|0|0|StorageType.DEVICE",
		"3|Shape([1, 32, 32, 64])|DataType.BFLOAT16|Layout.TILE|<nil>|0|12288|0|0|StorageType.DEVICE",
	}))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT * FROM device_tensors"), []string{"1|0|8192|0", "2|0|4096|0", "2|1|4096|0", "3|0|12288|0"}))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT * FROM output_tensors"), []string{"2|0|1|0", "1|0|2|0"}))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT value FROM operation_arguments WHERE name = 'held by' ORDER BY operation_id"), []string{
		event.Printable("kv[0]\x1b bfp8[8] TILE"), event.Printable("y </script>\x1b"),
	}))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT * FROM tensor_lifetime"), []string{
		"1|2|<nil>|<nil>|/srv/model.py|3|<nil>|<nil>|0", "2|1|<nil>|<nil>|/srv/model.py|3|<nil>|<nil>|0",
	}))
}

func TestChunksAreOnKnownCores(t *testing.T) {
	l1 := func(id uint64, banks uint32, size uint64) event.Event {
		return event.Event{
			Kind: event.Alloc, PID: 1, BufferID: id, Devices: []int{3}, Region: event.L1, Allocator: 1,
			Address: 200_000 + id, BytesPerBank: 4096, Banks: banks, SizeBytes: size, PageSizeBytes: 2048, Stack: at("empty", int(id), "output"),
		}
	}
	alone := l1(4, 2, 8192)
	alone.PerCore, alone.Cores = true, []event.CoreRange{{X0: 1, Y0: 0, X1: 1, Y1: 1}}
	scattered := alone
	scattered.BufferID, scattered.Address = 5, 0
	all := []event.Event{opened(3), l1(1, 4, 16384), l1(2, 4, 2048), l1(3, 2, 8192), alone, scattered}
	const query = "SELECT address, core_x, core_y, chunk_size, num_pages FROM buffer_chunks WHERE operation_id = 5 ORDER BY 1, 3, 2"
	onSingle := []string{"200004|1|0|4096|2", "200004|1|1|4096|2"}

	db := reportOf(t, Options{}, all...)
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, query), onSingle))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT num_x_cores, num_compute_cores FROM devices"), []string{"<nil>|<nil>"}))

	grid := event.Event{Kind: event.KernelLoad, PID: 1, ProgramID: 1, Devices: []int{3}, Cores: []event.CoreRange{{X1: 1, Y1: 1}}}
	db = reportOf(t, Options{}, append(all, grid)...)
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, query), append([]string{
		"200001|0|0|4096|2", "200001|1|0|4096|2", "200001|0|1|4096|2", "200001|1|1|4096|2",
	}, onSingle...)))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT * FROM devices"), []string{
		"3|2|2|2|2|1130000|4|1000000|0|100000|<nil>|4|<nil>|4520000|<nil>|4000000|4000000|1030000|0",
	}))
}

// Names and messages come from traced programs: the pages get one line of text, and valid JSON.
func TestHostileTexts(t *testing.T) {
	const hostile = "</script><img src=x onerror=alert(1)>\"'); DROP TABLE buffers;--\x00\xff\x1b[2J\u202e"
	stack := event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "func_create<ttnn." + hostile + ">"},
		{Kind: event.Python, Name: hostile, File: "/" + hostile + ".py", Line: 1 << 40},
	})
	db := reportOf(t, Options{Name: hostile},
		event.Event{Kind: event.ProcessStart, PID: 1, Comm: hostile, Start: &event.Start{Release: hostile}},
		opened(0),
		event.Event{Kind: event.Alloc, PID: 1, Comm: hostile, BufferID: 1, Devices: []int{0}, Address: 1 << 63, BytesPerBank: 1 << 63, Banks: 1 << 31, Stack: stack},
		event.Event{Kind: event.ProgramRun, PID: 1, ProgramID: 1 << 63, Devices: []int{0, 1 << 40}, Stack: stack},
		event.Event{Kind: event.AllocFailed, PID: 1, Devices: []int{0}, Message: "first\n" + hostile + "\n\tlast", Stack: stack},
	)
	for _, table := range []string{"operations", "operation_arguments", "stack_traces", "captured_graph", "errors", "report_metadata", "buffers"} {
		rows := rowsOf(t, db, "SELECT * FROM "+table)
		qt.Check(t, qt.Not(qt.HasLen(rows, 0)), qt.Commentf(table))
		for _, row := range rows {
			qt.Check(t, qt.IsTrue(utf8.ValidString(row)))
			qt.Check(t, qt.IsFalse(strings.ContainsAny(row, "\x00\x1b\u202e")), qt.Commentf("%q", row))
		}
	}
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT count(*) FROM captured_graph WHERE json_valid(captured_graph)"), []string{"2"}))
	messages := rowsOf(t, db, "SELECT error_message FROM errors")
	qt.Assert(t, qt.HasLen(messages, 1))
	qt.Check(t, qt.Equals(strings.Count(messages[0], "\n"), 2))
	qt.Check(t, qt.IsTrue(strings.HasSuffix(messages[0], "\n\tlast")))
}

func TestSources(t *testing.T) {
	var asked []string
	source := func(path string, at time.Time) (string, bool) {
		asked = append(asked, fmt.Sprint(path, " ", at.Unix()))
		return "a\n\tb = ttnn.add()\n", path == "/srv/model.py"
	}
	start := func(pid int, container string) event.Event {
		return event.Event{Kind: event.ProcessStart, PID: pid, Start: &event.Start{Container: container}}
	}
	alloc := func(pid, line int) event.Event {
		return event.Event{Kind: event.Alloc, PID: pid, TID: pid, BufferID: uint64(line), Stack: pagetest.Stack("add", "forward", line)}
	}
	db := reportOf(t, Options{Source: source}, start(1, ""), start(2, "c0ffee"), alloc(2, 1), alloc(1, 2), alloc(1, 9))
	qt.Check(t, qt.DeepEquals(asked, []string{"/srv/model.py 4", "/srv/run.py 4"}))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT path, contents FROM source_files"), []string{"/srv/model.py|a\n\tb = ttnn.add()\n"}))
	const rest = "\n  File \"/srv/run.py\", line 7, in <module>\n"
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT operation_id, source_file_id, stack_trace FROM stack_traces ORDER BY 1"), []string{
		"1|<nil>|  File \"/srv/model.py\", line 1, in forward\n" + rest,
		"2|1|  File \"/srv/model.py\", line 2, in forward\n    b = ttnn.add()\n" + rest,
		"3|1|  File \"/srv/model.py\", line 9, in forward\n" + rest,
	}))
}

// What has no call stack is no operation, but for programs and failures.
func TestWithoutStacks(t *testing.T) {
	db := reportOf(t, Options{}, opened(0),
		event.Event{Kind: event.Alloc, PID: 1, BufferID: 1, Devices: []int{0}},
		event.Event{Kind: event.ProgramRun, PID: 1, Devices: []int{0}},
		event.Event{Kind: event.AllocFailed, PID: 1, Devices: []int{0}, Reason: event.ReasonOutOfMemory},
	)
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT operation_id, name, stack_trace FROM operations JOIN stack_traces USING (operation_id)"), []string{"1|[no stack]|", "2|[no stack]|"}))
	qt.Check(t, qt.DeepEquals(rowsOf(t, db, "SELECT operation_id, operation_name, error_type, timestamp FROM errors"), []string{"2|[no stack]|out_of_memory|1970-01-01T00:00:04Z"}))
}
