package main

import (
	"cmp"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/e2e/nnvisualizer"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// A shownBuffer is a buffer, as TT-NN Visualizer shows it.
type shownBuffer struct {
	Device  int    `json:"device_id"`
	Address uint64 `json:"address"`
	Size    uint64 `json:"size"`
	Type    int    `json:"buffer_type"`
	Layout  int    `json:"buffer_layout"`
}

// A shownOperation is one of the list of operations.
type shownOperation struct {
	ID        int
	Name      string
	Trace     string `json:"stack_trace"`
	Arguments []struct{ Name, Value string }
	Graph     []struct {
		Type   string `json:"node_type"`
		Params struct {
			Address uint64
			Size    uint64
			Cores   string `json:"core_range_set"`
			Global  string `json:"globally_allocated"`
			Device  int    `json:"device_id"`
			Program uint64 `json:"program_id"`
			Kind    string
		}
	} `json:"device_operations"`
	Error *struct {
		Type    string `json:"error_type"`
		Message string `json:"error_message"`
	}
}

func (o *shownOperation) argument(name string) string {
	for _, a := range o.Arguments {
		if a.Name == name {
			return a.Value
		}
	}
	return ""
}

// The real TT-NN Visualizer opens reports of real programs. All its figures are those of the state
// at the time of the operation.
func TestVisualizerShowsTheState(t *testing.T) {
	server := nnvisualizer.Start(t)
	t.Run("tensors", func(t *testing.T) { showsTensors(t, server) })
	for _, story := range []string{"mix", "mesh", "inference"} {
		t.Run(story, func(t *testing.T) {
			dir := t.TempDir()
			file, report := filepath.Join(dir, "a.ttmem"), filepath.Join(dir, "report")
			readStory(t, storyEvents(goldenFolder, story)).record(t, file, 0)
			_, errs, status := runOnStreams(t, false, []string{"export", file, "--to", "visualizer", "-o", report})
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
			compareReport(t, server.Open(t, report), file)
		})
	}
}

// showsTensors opens a report in which the owners of buffers are known.
func showsTensors(t *testing.T, server *nnvisualizer.Server) {
	stack := event.StackOf([]event.Frame{{Kind: event.Python, Name: "load", Symbol: "load", File: "/srv/model.py", Line: 3}})
	open := event.Event{Kind: event.DeviceOpen, PID: 7, TimeNs: 2, Allocator: 1, Devices: []int{0, 1}, Open: &event.Open{Capacities: pagetest.Capacities}}
	alloc := pagetest.Buffer(event.Alloc, 1, event.DRAM, 0x2000, 4096, stack, 0, 1)
	early := pagetest.Buffer(event.Alloc, 2, event.L1, 0x9000, 64, nil, 1)
	owner := event.Event{Kind: event.Owner, PID: 7, TimeNs: 5, BufferID: 1, Cause: "model.wq", Message: "bf16[1,32,32,64] TILE"}
	alloc.PID, alloc.TimeNs, early.PID, early.TimeNs, early.BeforeAttach = 7, 4, 7, 3, true
	held := owner
	held.BufferID, held.Cause, held.Message = 2, "<img src=x onerror=alert(1)>", "u32[5,7] ROW_MAJOR"
	file := writeEvents(t, "held.ttmem", []event.Event{{Kind: event.ProcessStart, PID: 7, Comm: "python3", TimeNs: 1}, open, early, alloc, owner, held})
	report := filepath.Join(t.TempDir(), "report")
	_, errs, status := runOnStreams(t, false, []string{"export", file, "--to", "visualizer", "-o", report})
	qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
	r := server.Open(t, report)
	type tensor struct {
		Shape, DType, Layout string
		Address              uint64
		Device               int `json:"device_id"`
		Type                 int `json:"buffer_type"`
		Producers            []int
		Addresses            []uint64 `json:"device_addresses"`
	}
	qt.Check(t, qt.DeepEquals(nnvisualizer.Get[[]tensor](r, "tensors"), []tensor{
		{"Shape([1, 32, 32, 64])", "DataType.BFLOAT16", "Layout.TILE", 0x2000, 0, 0, []int{1}, []uint64{0x2000, 0x2000}},
		{"Shape([5, 7])", "DataType.UINT32", "Layout.ROW_MAJOR", 0x9000, 1, 1, []int{}, []uint64{0, 0x9000}},
	}))
	qt.Check(t, qt.DeepEquals(nnvisualizer.Get[tensor](r, "tensors/1").Shape, "Shape([1, 32, 32, 64])"))
	page := nnvisualizer.Get[struct{ Outputs []tensor }](r, "operations/1")
	qt.Assert(t, qt.HasLen(page.Outputs, 1))
	qt.Check(t, qt.Equals(page.Outputs[0].DType, "DataType.BFLOAT16"))
	one := nnvisualizer.Get[[]shownOperation](r, "operations")[0]
	qt.Check(t, qt.Equals(one.argument("held by"), "model.wq bf16[1,32,32,64] TILE"))
}

// compareReport compares what all routes of the pages answer with the states of the recording.
func compareReport(t *testing.T, r *nnvisualizer.Report, file string) {
	t.Helper()
	operations := nnvisualizer.Get[[]shownOperation](r, "operations")
	qt.Assert(t, qt.Not(qt.HasLen(operations, 0)))
	at := make(map[uint64][]*shownOperation) // by time
	for i := range operations {
		o := &operations[i]
		d, err := time.ParseDuration(o.argument("time"))
		qt.Assert(t, qt.IsNil(err))
		at[uint64(d)] = append(at[uint64(d)], o)
	}
	compared, failures, statics, all := 0, 0, 0, 0
	var compiled []*shownOperation // whose circular buffers may come after the run
	state := playStates(t, file, func(ns uint64, s *aggregate.State) {
		for _, o := range at[ns] {
			compared++
			want := shown(s.Buffers())
			all += len(want)
			one := nnvisualizer.Get[struct{ Buffers []shownBuffer }](r, "operation-buffers/%d", o.ID)
			qt.Check(t, qt.DeepEquals(sorted(one.Buffers), want), qt.Commentf("operation %d %s", o.ID, o.Name))
			comparePage(t, r, o, want)
			compiled = append(compiled, o)
			if o.Error != nil {
				failures++
			}
		}
		compiled = slices.DeleteFunc(compiled, func(o *shownOperation) bool {
			got, want := staticsOf(o, s)
			if !slices.Equal(got, want) {
				return false
			}
			statics += len(got)
			return true
		})
	})
	qt.Check(t, qt.HasLen(compiled, 0))
	snap := state.Snapshot()
	qt.Check(t, qt.Equals(compared, len(operations)))
	qt.Check(t, qt.Equals(failures, len(snap.Failures)))
	qt.Check(t, qt.HasLen(nnvisualizer.Get[[]any](r, "errors"), failures))
	t.Logf("%d operations, %d rows of buffers, %d circular buffers, %d failures", compared, all, statics, failures)

	qt.Check(t, qt.HasLen(nnvisualizer.Get[[]any](r, "operation-buffers"), compared))
	qt.Check(t, qt.HasLen(nnvisualizer.Get[[]any](r, "buffers"), all))
	qt.Check(t, qt.HasLen(nnvisualizer.Get[[]any](r, "tensors"), 0))
	qt.Check(t, qt.Equals(nnvisualizer.Get[map[string]string](r, "config")["report_name"], "a"))
	qt.Check(t, qt.Equals(nnvisualizer.Get[map[string]string](r, "report-metadata")["schema_version"], "3.5"))
	r.Missing("cluster-descriptor")
	compareDevices(t, r, state, snap.DeviceIDs())
	compareBuffer(t, r, operations)
}

// comparePage compares the page of an operation, whose buffers have their size under another name.
func comparePage(t *testing.T, r *nnvisualizer.Report, o *shownOperation, want []shownBuffer) {
	t.Helper()
	page := nnvisualizer.Get[struct {
		shownOperation
		Buffers []struct {
			Device  int    `json:"device_id"`
			Address uint64 `json:"address"`
			Size    uint64 `json:"max_size_per_bank"`
			Type    int    `json:"buffer_type"`
			Layout  int    `json:"buffer_layout"`
		}
	}](r, "operations/%d", o.ID)
	qt.Check(t, qt.DeepEquals(page.shownOperation, *o))
	var buffers []shownBuffer
	for _, b := range page.Buffers {
		buffers = append(buffers, shownBuffer(b))
	}
	qt.Check(t, qt.DeepEquals(sorted(buffers), want), qt.Commentf("operation %d %s", o.ID, o.Name))
}

// staticsOf returns the circular buffers of an operation, and those that its programs have in a
// state.
func staticsOf(o *shownOperation, s *aggregate.State) (got, want []string) {
	programs := make(map[uint64]bool)
	for _, n := range o.Graph {
		if p := n.Params; n.Type == "circular_buffer_allocate" {
			programs[p.Program] = true
			got = append(got, fmt.Sprint(p.Device, p.Program, p.Address, p.Size, p.Cores, p.Global == "1", p.Kind))
		}
	}
	for _, id := range s.Snapshot().DeviceIDs() {
		for _, c := range s.Statics(id) {
			if !programs[c.ProgramID] {
				continue
			}
			var cores []string
			for _, one := range c.Cores {
				cores = append(cores, fmt.Sprintf("[%d-%d - %d-%d]", one.X0, one.Y0, one.X1, one.Y1))
			}
			want = append(want, fmt.Sprint(id, c.ProgramID, c.Address, c.BytesPerCore, "{"+strings.Join(cores, ", ")+"}", c.Global, c.Kind.String()))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	return got, want
}

// compareDevices compares the chips with their capacities.
func compareDevices(t *testing.T, r *nnvisualizer.Report, s *aggregate.State, ids []int) {
	t.Helper()
	devices := nnvisualizer.Get[[]struct {
		ID    int    `json:"device_id"`
		Size  uint64 `json:"worker_l1_size"`
		Banks uint32 `json:"l1_num_banks"`
		Bank  uint64 `json:"l1_bank_size"`
		Base  uint64 `json:"address_at_first_l1_cb_buffer"`
	}](r, "devices")
	qt.Assert(t, qt.HasLen(devices, len(ids)))
	for i, d := range devices {
		l1, small := s.Capacity(ids[i], event.L1), s.Capacity(ids[i], event.L1Small)
		qt.Check(t, qt.Equals(d.ID, ids[i]))
		qt.Check(t, qt.Equals(event.Capacity{Banks: d.Banks, BytesPerBank: d.Bank, Base: d.Base}, l1))
		qt.Check(t, qt.Equals(d.Size, l1.Base+l1.BytesPerBank+small.BytesPerBank))
	}
}

// compareBuffer asks for the buffers of a type, for the next operation that has a buffer, and for
// the cores of buffers.
func compareBuffer(t *testing.T, r *nnvisualizer.Report, operations []shownOperation) {
	t.Helper()
	last := operations[len(operations)-1]
	buffers := nnvisualizer.Get[struct{ Buffers []shownBuffer }](r, "operation-buffers/%d", last.ID).Buffers
	qt.Assert(t, qt.Not(qt.HasLen(buffers, 0)))
	b := buffers[0]
	for _, one := range nnvisualizer.Get[[]shownBuffer](r, "buffers?buffer_type=%d&device_id=%d", b.Type, b.Device) {
		qt.Assert(t, qt.Equals(one.Type, b.Type))
		qt.Assert(t, qt.Equals(one.Device, b.Device))
	}
	next := nnvisualizer.Get[struct {
		ID   int    `json:"operation_id"`
		Size uint64 `json:"max_size_per_bank"`
	}](r, "buffer?address=%s&operation_id=%d", url.QueryEscape(fmt.Sprint(b.Address)), last.ID-1)
	qt.Check(t, qt.Equals(next.ID, last.ID))
	type chunk struct {
		Address uint64 `json:"chunk_address"`
		Size    uint64 `json:"chunk_size"`
		X       int    `json:"core_x"`
		Y       int    `json:"core_y"`
	}
	for _, b := range buffers {
		cores := make(map[[2]int]bool)
		for _, c := range nnvisualizer.Get[[]chunk](r, "buffer-pages?operation_id=%d&address=%d&buffer_type=%d&device_id=%d", last.ID, b.Address, b.Type, b.Device) {
			qt.Check(t, qt.Equals(c.Address, b.Address))
			qt.Check(t, qt.Equals(c.Size, b.Size))
			qt.Check(t, qt.IsFalse(cores[[2]int{c.X, c.Y}]))
			cores[[2]int{c.X, c.Y}] = true
		}
		if len(cores) > 0 {
			qt.Check(t, qt.Equals(b.Type, int(event.L1)))
			qt.Check(t, qt.HasLen(cores, 64))
		}
	}
}

// playStates calls at with the state at each time after the first event, and returns the state at
// the end.
func playStates(t *testing.T, file string, at func(ns uint64, s *aggregate.State)) *aggregate.State {
	t.Helper()
	f, err := source.Open(file)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	s, began, last := aggregate.New(), uint64(0), uint64(0)
	apply := s.Completed(func(*event.Event) {})
	_, err = f.Play(t.Context(), func(e *event.Event) {
		if began = cmp.Or(began, e.TimeNs); e.TimeNs > last {
			at(last-min(last, began), s)
		}
		apply(e)
		last = e.TimeNs
	})
	qt.Assert(t, qt.IsNil(err))
	at(last-began, s)
	return s
}

// shown returns buffers as the pages show them.
func shown(buffers []memory.Buffer) (list []shownBuffer) {
	for _, b := range buffers {
		for _, id := range b.Devices {
			list = append(list, shownBuffer{id, b.Address, b.BytesPerBank, int(b.Region), int(b.Layout)})
		}
	}
	return sorted(list)
}

func sorted(list []shownBuffer) []shownBuffer {
	slices.SortFunc(list, func(a, b shownBuffer) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Size, b.Size))
	})
	return list
}

func TestOperationsAreChosen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.ttmem")
	readStory(t, storyEvents(goldenFolder, "mix")).record(t, file, 0)
	for ops, want := range map[string]string{
		"":         "operations 1 to 114 of 114",
		"..":       "operations 1 to 114 of 114",
		"7":        "operations 7 to 7 of 114",
		"7..9":     "operations 7 to 9 of 114",
		"..9":      "operations 1 to 9 of 114",
		"110..":    "operations 110 to 114 of 114",
		"110..999": "operations 110 to 114 of 114",
		"115..":    "--ops 115..: there are 114 operations",
		"9..7":     "--ops 9..7: the last operation is before the first",
		"0..7":     "--ops: give operations such as 100..200",
		"a..b":     "--ops: give operations such as 100..200",
	} {
		args := []string{"export", file, "--to", "visualizer", "-o", filepath.Join(t.TempDir(), "report")}
		if ops != "" {
			args = append(args, "--ops", ops)
		}
		_, errs, status := runOnStreams(t, false, args)
		qt.Check(t, qt.StringContains(errs, want), qt.Commentf(ops))
		qt.Check(t, qt.Equals(status == 0, strings.HasPrefix(want, "operations")), qt.Commentf(ops))
	}
}

// TestALargeReportHasTheLastOperations, and says so, unless operations are chosen.
func TestALargeReportHasTheLastOperations(t *testing.T) {
	var events []event.Event
	for i := range 1500 { // each with its buffer, which stays
		e := pagetest.Buffer(event.Alloc, uint64(i+1), event.DRAM, uint64(i+1)<<12, 64, pagetest.Stack("empty", "load", i+1), 0)
		e.TimeNs = uint64(i + 1)
		events = append(events, e)
	}
	file := writeEvents(t, "large.ttmem", events)
	for flags, want := range map[string]string{
		"": "ttmem: 1,500 operations would be too many rows: the report has the last ones; choose others with --ops A..B\n" +
			"ttmem: wrote report of operations 524 to 1,500 of 1,500",
		"--ops 1..9": "ttmem: wrote report of operations 1 to 9 of 1,500",
	} {
		args := []string{"export", file, "--to", "visualizer", "-o", filepath.Join(t.TempDir(), "report")}
		_, errs, status := runOnStreams(t, false, append(args, strings.Fields(flags)...))
		qt.Check(t, qt.Equals(status, 0))
		qt.Check(t, qt.IsTrue(strings.HasPrefix(errs, want)), qt.Commentf("%s", errs))
	}
}
