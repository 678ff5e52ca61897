package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/eventlog"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/cmd/ttmem/internal/term"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// writeEvents writes a recording of events, each a tenth of a second after the one before
// where it has no time of its own. It does not say when it was made.
func writeEvents(t *testing.T, name string, events []event.Event) string {
	t.Helper()
	var out bytes.Buffer
	r, err := recording.NewWriter(&out, recording.Header{})
	qt.Assert(t, qt.IsNil(err))
	now := uint64(1000 * pagetest.Second)
	for _, e := range events {
		if e.TimeNs == 0 {
			now += pagetest.Second / 10
			e.TimeNs = now
		}
		now = e.TimeNs
		r.Add(&e)
	}
	qt.Assert(t, qt.IsNil(r.Close(recording.End{})))
	path := filepath.Join(t.TempDir(), name)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, out.Bytes(), 0o644)))
	return path
}

// oddEvents have one of everything that a log tells.
func oddEvents() []event.Event {
	add, mul := pagetest.Stack("add", "Attention.forward", 31), pagetest.Stack("matmul", "Attention.forward", 32)
	cleanup := event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "tt::tt_metal::BufferImpl::deallocate_impl", Module: "libtt_metal.so"},
		{Kind: event.Native, Name: "ttnn::DeviceStorage::deallocate", Module: "_ttnncpp.so"},
		{Kind: event.Python, Name: "cleanup", File: "/srv/model.py", Line: 40},
	})
	alloc, free := event.Alloc, event.Free
	cores := []event.CoreRange{{X1: 7, Y1: 7}}
	other := pagetest.Buffer(alloc, 1, event.DRAM, 0x8000, 4096, add, 0)
	other.PID, other.TID = 4300, 4300
	sharded := pagetest.Buffer(alloc, 6, event.L1, 0x17800, 2048, mul, 0, 1)
	sharded.Layout, sharded.Banks = event.HeightSharded, 4
	freed := pagetest.Buffer(free, 1, event.DRAM, 0x8000, 8192, nil, 0, 1)
	freed.Stack = cleanup
	unseen := pagetest.Buffer(free, 99, event.DRAM, 0x9000, 4096, nil, 0)
	early := pagetest.Buffer(alloc, 3, event.DRAM, 0x20000, 1024, nil, 0)
	early.BeforeAttach = true
	return []event.Event{
		{Kind: event.ProcessStart, PID: 4242, Comm: "python3", Start: &event.Start{Command: "python3 run.py", Release: "0.81.1"}},
		{Kind: event.DeviceOpen, PID: 4242, Allocator: 1, Devices: []int{0, 1}, Open: &event.Open{Board: "n300", Arch: "wormhole_b0", Capacities: pagetest.Capacities}, Mesh: true},
		early,
		pagetest.Buffer(alloc, 1, event.DRAM, 0x8000, 8192, add, 0, 1),
		freed,
		pagetest.Buffer(free, 1, event.DRAM, 0x8000, 8192, nil, 0, 1),
		pagetest.Buffer(alloc, 2, event.DRAM, 0x8000, 4096, mul, 0, 1),
		other,
		unseen,
		{Kind: event.CBAlloc, PID: 4242, ProgramID: 5, Devices: []int{0, 1}, Region: event.CB, Address: 0x8000, SizeBytes: 4096, Cores: cores, StaticKind: event.CircularBuffer, Stack: mul},
		{Kind: event.KernelLoad, PID: 4242, ProgramID: 5, Devices: []int{0, 1}, Region: event.Kernel, SizeBytes: 20000, BytesPerBank: 800, Cores: cores, Stack: mul},
		sharded,
		{Kind: event.AllocFailed, PID: 4242, Devices: []int{0, 1}, Region: event.L1, SizeBytes: 1 << 30, BytesPerBank: 1 << 24, Banks: 64,
			Reason: event.ReasonOutOfMemory, Message: "TT_FATAL @ bank_manager.cpp:514: false\ninfo:\nOut of Memory: Not enough space to allocate\n", Stack: mul},
		{Kind: event.Mark, Cause: "warm"},
		pagetest.Buffer(alloc, 2, event.DRAM, 0xa000, 4096, mul, 0, 1),
		{Kind: event.Lost, Count: 3, Cause: "ring buffer full"},
		pagetest.Buffer(free, 3, event.DRAM, 0x20000, 1024, nil, 0),
		{Kind: event.CBFree, PID: 4242, ProgramID: 5, Devices: []int{0, 1}},
		{Kind: event.ProcessExit, PID: 4242, ExitStatus: 9},
	}
}

// logOf is what a log of a file prints.
func logOf(t *testing.T, path string, o logOptions, layout page.Layout) (string, *eventlog.Log) {
	t.Helper()
	o.source.File = path
	filter, _, err := o.check()
	qt.Assert(t, qt.IsNil(err))
	filter.Times, err = o.times(moment.EveryRegion)
	qt.Assert(t, qt.IsNil(err))
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	out := output.NewLines(f, false)
	l := eventlog.New(o.listed(), filter, nil, layout, out.Write)
	_, err = o.watch(l)
	qt.Assert(t, qt.IsNil(err))
	l.End()
	qt.Assert(t, qt.IsNil(out.Close()))
	text, err := os.ReadFile(f.Name())
	qt.Assert(t, qt.IsNil(err))
	return string(text), l
}

func TestTheLog(t *testing.T) {
	path := writeEvents(t, "odd.ttmem", oddEvents())
	for _, test := range []struct {
		name    string
		options logOptions
		layout  page.Layout
	}{
		{"log_lines", logOptions{}, page.Layout{}},
		{"log_wide", logOptions{}, page.Layout{Width: 200}},
		{"log_narrow", logOptions{}, page.Layout{Width: 80}},
		{"log_color", logOptions{}, page.Layout{Painter: page.Painter{Color: true}, Width: 100}},
		{"log_ascii", logOptions{}, page.Layout{Painter: page.Painter{ASCII: true}}},
		{"log_stacks", logOptions{stacks: true, buffers: []string{"1"}}, page.Layout{Width: 100}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, _ := logOf(t, path, test.options, test.layout)
			golden.Check(t, test.name+".golden", text)
			if test.layout.Width > 0 {
				pagetest.CheckWidth(t, text, test.layout.Width)
			}
		})
	}
}

// TestTheLogListsSelectedEvents: events by their numbers, and after the last one those
// that the exit implies.
func TestTheLogListsSelectedEvents(t *testing.T) {
	path := writeEvents(t, "odd.ttmem", oddEvents())
	for name, c := range map[string]struct {
		options logOptions
		want    string // kind and buffer
	}{
		"address":               {logOptions{addresses: []string{"0x8000"}}, "alloc1 free1 free1 alloc2 alloc1 cb_alloc"},
		"an address inside":     {logOptions{addresses: []string{"0x9fff"}}, "alloc1 free1 free1 free99"},
		"a decimal address":     {logOptions{addresses: []string{"131072"}}, "alloc3 free3"},
		"buffer":                {logOptions{buffers: []string{"2"}}, "alloc2 alloc2 free2"},
		"object":                {logOptions{buffers: []string{"0x7f0000001600"}}, "alloc6 free6"},
		"region":                {logOptions{viewOptions: viewOptions{regions: []string{"l1"}}}, "alloc6 alloc_failed free6"},
		"circular buffers":      {logOptions{viewOptions: viewOptions{regions: []string{"CB"}}}, "cb_alloc cb_free"},
		"kernels":               {logOptions{viewOptions: viewOptions{regions: []string{"KERNEL"}}}, "kernel_load kernel_unload"},
		"device":                {logOptions{viewOptions: viewOptions{devices: []int{1}}, kinds: []string{"alloc"}}, "alloc1 alloc2 alloc6 alloc2"},
		"kind":                  {logOptions{kinds: []string{"mark", "lost"}}, "mark lost"},
		"grep a line":           {logOptions{viewOptions: viewOptions{grep: `model\.py:31`}}, "alloc1 free1 alloc1"},
		"grep a message":        {logOptions{viewOptions: viewOptions{grep: "Not enough"}}, "alloc_failed"},
		"process":               {logOptions{viewOptions: viewOptions{source: source.Options{PIDs: []int{4300}}, regions: []string{"DRAM"}}}, "alloc1"},
		"from":                  {logOptions{viewOptions: viewOptions{span: flags.Span{From: "1.7s"}}}, "cb_free free6 free2 kernel_unload process_exit"},
		"to":                    {logOptions{viewOptions: viewOptions{span: flags.Span{To: "200ms"}}}, "process_start device_open alloc3"},
		"double free":           {logOptions{kinds: []string{eventlog.NoteDoubleFree}}, "free1"},
		"unseen":                {logOptions{kinds: []string{eventlog.NoteUnseen}}, "free99"},
		"double free, replaced": {logOptions{kinds: []string{eventlog.NoteDoubleFree, eventlog.NoteReplaced}}, "free1 alloc2"},
		"reuse":                 {logOptions{kinds: []string{eventlog.NoteReuse}}, "alloc2"},
		"the last":              {logOptions{viewOptions: viewOptions{n: 2}, kinds: []string{"alloc"}}, "alloc6 alloc2"},
		"more than there are":   {logOptions{viewOptions: viewOptions{n: 50}, kinds: []string{"mark"}}, "mark"},
	} {
		t.Run(name, func(t *testing.T) {
			c.options.format.JSON = true
			text, _ := logOf(t, path, c.options, page.Layout{})
			var got []string
			for line := range strings.Lines(text) {
				var e struct {
					Kind     string  `json:"kind"`
					BufferID *uint64 `json:"buffer_id"`
				}
				qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &e)))
				if e.BufferID != nil {
					e.Kind += strings.TrimSpace(string(mustJSON(*e.BufferID)))
				}
				got = append(got, e.Kind)
			}
			qt.Check(t, qt.Equals(strings.Join(got, " "), c.want))
		})
	}
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// TestALineOfTheLogIsAnEvent: each event is a line, which begins as its record does.
func TestALineOfTheLogIsAnEvent(t *testing.T) {
	path := writeEvents(t, "odd.ttmem", oddEvents())
	text, l := logOf(t, path, logOptions{viewOptions: viewOptions{format: term.Format{JSON: true}}}, page.Layout{})
	lines := slices.Collect(strings.Lines(text))
	state := aggregate.New()
	_, err := (&source.Options{File: path}).Watch(state.Completed(func(e *event.Event) {
		qt.Assert(t, qt.IsTrue(len(lines) > 0))
		record := string(document.Append(nil, e.Record(), nil))
		user := regexp.MustCompile(`,"user":"\w*"`).ReplaceAllString(lines[0], "")
		qt.Check(t, qt.StringContains(user, strings.TrimSuffix(record, "}")+`,"note":{`))
		lines = lines[1:]
	}))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(lines, 0))
	qt.Check(t, qt.Equals(uint64(strings.Count(text, "\n")), l.Listed))
	var note struct {
		Kind string        `json:"kind"`
		Note eventlog.Note `json:"note"`
	}
	for line := range strings.Lines(text) {
		note.Note = eventlog.Note{}
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(line), &note)))
		if len(note.Note.Kinds) > 0 && note.Note.Kinds[0] == eventlog.NoteReuse {
			break
		}
	}
	qt.Assert(t, qt.IsNotNil(note.Note.Earlier))
	qt.Check(t, qt.Equals(note.Note.Earlier.BytesPerBank, 8192))
	qt.Check(t, qt.Equals(note.Note.Earlier.Name, "model.py:31 Attention.forward · ttnn.add"))
	qt.Check(t, qt.IsTrue(*note.Note.OwnsData))
}

func TestTheLogSaysWhatIsWrongWithItsFlags(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"region":          {[]string{"--region", "SRAM"}, "choose DRAM, L1, CB,"},
		"kind":            {[]string{"--kind", "malloc"}, "choose alloc, free,"},
		"buffer":          {[]string{"--buffer", "x"}, "give an id such as 1234, or the address of a Buffer object"},
		"address":         {[]string{"--address", "here"}, "give one such as 0x1c40"},
		"grep":            {[]string{"--grep", "("}, "--grep: not a regular expression: missing closing )"},
		"from":            {[]string{"--from", "-1s"}, "give one such as 2.5s"},
		"to":              {[]string{"--from", "2s", "--to", "1s"}, "--to 1s must be later than --from 2s"},
		"a live mark":     {[]string{"--from", "warm"}, "--from is a moment of a recording"},
		"a peak":          {[]string{"--to", "peak"}, "--to is a moment of a recording"},
		"last":            {[]string{"-n", "-1"}, "0 lists all"},
		"json and stacks": {[]string{"--json", "--stacks"}, "leave out --stacks"},
		"two files":       {[]string{"a", "b"}, "one file at a time"},
		"no file":         {[]string{"/no/such/file"}, "no such file"},
		"no rules":        {[]string{"--rules", "/no/such/file", "x"}, "--rules /no/such/file: no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			err := execute(append([]string{"log"}, c.args...)...)
			qt.Assert(t, qt.IsNotNil(err))
			qt.Check(t, qt.StringContains(err.Error(), c.says))
			qt.Check(t, qt.IsFalse(strings.Contains(err.Error(), "\n")))
		})
	}
}

func TestALogThatListsNothingSaysWhy(t *testing.T) {
	path := writeEvents(t, "odd.ttmem", oddEvents())
	for name, c := range map[string]struct {
		options logOptions
		says    string
	}{
		"chip":    {logOptions{viewOptions: viewOptions{devices: []int{7}}}, "available: chips 0, 1"},
		"from":    {logOptions{viewOptions: viewOptions{span: flags.Span{From: "1h"}}}, "the last is 1.8 s after the first"},
		"address": {logOptions{addresses: []string{"0x1"}}, "--buffer takes addresses in the process"},
		"kind":    {logOptions{kinds: []string{"device_close"}}, "available: alloc, free, alloc_failed"},
		"region":  {logOptions{viewOptions: viewOptions{regions: []string{"TRACE"}}}, "available: DRAM, L1, CB, KERNEL"},
		"buffer":  {logOptions{buffers: []string{"1000"}}, "buffers are from 1 to 99"},
		"object":  {logOptions{buffers: []string{"0x1"}}, "--address takes addresses in banks"},
		"grep":    {logOptions{viewOptions: viewOptions{grep: "ttnn.nothing"}}, "(?i) ignores case"},
		"note":    {logOptions{viewOptions: viewOptions{span: flags.Span{To: "100ms"}}, kinds: []string{"reuse"}}, "have no such notes"},
	} {
		t.Run(name, func(t *testing.T) {
			text, l := logOf(t, path, c.options, page.Layout{})
			qt.Check(t, qt.Equals(text, ""))
			qt.Check(t, qt.StringContains(l.Hint(), c.says))
		})
	}
}

// Kernels of the runtime are told apart. The size of their text is not known for all types of cores.
func TestTheLogSaysWhatKernelsAreFor(t *testing.T) {
	load := func(program uint64, kind event.KernelKind, dram, text uint64) event.Event {
		return event.Event{
			TimeNs: 1, Kind: event.KernelLoad, PID: 4242, ProgramID: program, Devices: []int{0}, Region: event.Kernel,
			SizeBytes: dram, BytesPerBank: text, KernelKind: kind,
		}
	}
	path := writeEvents(t, "kernels.ttmem", []event.Event{
		{Kind: event.ProcessStart, PID: 4242}, load(0, event.QueueKernels, 0, 31616), load(1, event.FabricKernels, 0, 0),
		load(2, event.WorkerKernels, 4096, 1424),
	})
	kernels := logOptions{kinds: []string{"kernel_load"}}
	text, _ := logOf(t, path, kernels, page.Layout{})
	var lines []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n")[1:] {
		_, line, _ = strings.Cut(line, "kernel_load")
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	qt.Check(t, qt.DeepEquals(lines, []string{
		"0 B 30.9 KiB KERNEL command queue 4242 program 0, (no call stack)",
		"0 B not known KERNEL fabric 4242 program 1, (no call stack)",
		"4.0 KiB 1.4 KiB KERNEL 4242 program 2, (no call stack)",
	}))
	kernels.format.JSON = true
	text, _ = logOf(t, path, kernels, page.Layout{})
	qt.Check(t, qt.DeepEquals(regexp.MustCompile(`"kernel_kind":"\w+"`).FindAllString(text, -1), []string{
		`"kernel_kind":"command_queue"`, `"kernel_kind":"fabric"`,
	}))
	for line := range strings.Lines(text) {
		pagetest.CheckSchema(t, "event", line)
	}
}

// TestALiveLogBeginsWithTheLast: with -n, what has happened before is cut short, and
// what happens from then on is not.
func TestALiveLogBeginsWithTheLast(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	out := output.NewLines(f, false)
	l := eventlog.New(eventlog.Options{Limit: 1, LiveNs: 100}, &eventlog.Filter{}, nil, page.Layout{}, out.Write)
	for i, time := range []uint64{50, 60, 100, 110} {
		l.Handle(&event.Event{Kind: event.Mark, TimeNs: time, Cause: []string{"a", "b", "c", "d"}[i]})
	}
	qt.Assert(t, qt.IsNil(out.Close()))
	text, err := os.ReadFile(f.Name())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(regexp.MustCompile(`(?m)\w$`).FindAllString(string(text), -1)[1:], []string{"b", "c", "d"}))
}
