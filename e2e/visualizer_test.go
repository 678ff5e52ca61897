package e2e

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/nnvisualizer"
)

// TT-NN Visualizer shows the same operations, buffers and chips in a report of ttmem as in the report
// that the library made of the same run.
func TestVisualizerShowsWhatTheLibraryReports(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	own, ours := filepath.Join(dir, "own"), filepath.Join(dir, "ours")
	file := recorded(t, dir, "run", program(t, "own_report.py"), own)
	ask(t, "export", file, "--to", "visualizer", "-o", ours)
	server := nnvisualizer.Start(t)
	a, b := server.Open(t, own), server.Open(t, ours)

	type operation struct {
		ID    int    `json:"id"`
		Name  string `json:"name"`
		Trace string `json:"stack_trace"`
		// Source is the number of the file of the trace.
		Source int `json:"stack_trace_source_file_id"`
	}
	operations := func(r *nnvisualizer.Report) []operation {
		list := nnvisualizer.Get[[]operation](r, "operations")
		return slices.DeleteFunc(list, func(o operation) bool { return o.Name == "ttnn.deallocate" }) // frees are no operations
	}
	theirs, list := operations(a), operations(b)
	qt.Assert(t, qt.HasLen(list, len(theirs)))
	type buffer struct {
		Device  int    `json:"device_id"`
		Address uint64 `json:"address"`
		Size    uint64 `json:"size"`
		Type    int    `json:"buffer_type"`
		Layout  int    `json:"buffer_layout"`
	}
	buffers := func(r *nnvisualizer.Report, id int) []buffer {
		list := nnvisualizer.Get[struct{ Buffers []buffer }](r, "operation-buffers/%d", id).Buffers
		slices.SortFunc(list, func(a, b buffer) int { return cmp.Or(cmp.Compare(a.Type, b.Type), cmp.Compare(a.Address, b.Address)) })
		return list
	}
	for i := range list {
		qt.Check(t, qt.Equals(list[i].Name, theirs[i].Name))
		qt.Check(t, qt.Equals(list[i].Source, 1))
		// the library's trace has its own frames as well
		for line := range strings.Lines(list[i].Trace) {
			qt.Check(t, qt.StringContains(theirs[i].Trace, line))
		}
		qt.Check(t, qt.DeepEquals(buffers(b, list[i].ID), buffers(a, theirs[i].ID)), qt.Commentf("after %s", list[i].Name))
	}

	devices := func(r *nnvisualizer.Report) map[string]any {
		all := nnvisualizer.Get[[]map[string]any](r, "devices")
		qt.Assert(t, qt.HasLen(all, 1))
		for _, unknown := range []string{
			"num_y_cores", // with those that dispatch
			"num_banks_per_storage_core", "total_l1_for_tensors",
		} {
			delete(all[0], unknown)
		}
		return all[0]
	}
	qt.Check(t, qt.DeepEquals(devices(b), devices(a)))
}
