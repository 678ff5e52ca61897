package alloc

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// TestMixNamesWhatIsNoTensor: the title of a group says what in it is no tensor.
func TestMixNamesWhatIsNoTensor(t *testing.T) {
	tensors, binaries, trace := name.ClassByOwner("w", "bf16[32,32] TILE"), name.ClassByOwner(event.OwnerBinaries, ""), name.ClassByOwner(event.OwnerTraces, "")
	for _, test := range []struct {
		classes []*name.Class
		text    string
		class   *name.Class
	}{
		{nil, "", nil},
		{[]*name.Class{tensors, tensors}, "", tensors},
		{[]*name.Class{binaries, binaries}, ", 2 kernel binaries", binaries},
		{[]*name.Class{tensors, binaries, tensors, trace}, ", of which 1 kernel binary, 1 trace buffer", nil},
		{[]*name.Class{nil, binaries}, ", of which 1 kernel binary", nil},
		{[]*name.Class{nil}, "", nil},
	} {
		var one, sum Mix
		for _, c := range test.classes {
			one.Add(c, 1)
		}
		one.Add(trace, 0) // no buffers
		sum.AddAll(one)
		qt.Check(t, qt.Equals(sum.Text(), test.text))
		qt.Check(t, qt.Equals(sum.Class(), test.class))
	}
}

// TestClassOfRow: the region of traces and what is no buffer decide first, then the call stack, then the
// owner.
func TestClassOfRow(t *testing.T) {
	var n Namer
	binaries := n.Site(event.StackOf([]event.Frame{{Kind: event.Native, Name: "tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries"}}))
	cached := memory.Owner{Path: event.OwnerProgramCache}
	for _, test := range []struct {
		row         Row
		class, text string
	}{
		{Row{Region: event.DRAM, Site: binaries, Owner: cached}, "kernel binaries", "kernel binaries · tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries"},
		{Row{Region: event.Trace, Site: binaries, Owner: cached}, "trace", "trace · tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries"},
		{Row{Region: event.CB, Site: binaries}, "", "tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries"},
		{Row{Region: event.DRAM, Site: n.Site(nil), BeforeAttach: true, Owner: cached}, "program cache", "program cache · allocated before ttmem attached"},
		{Row{Region: event.DRAM, Site: n.Site(nil), BeforeAttach: true}, "", "allocated before ttmem attached"},
	} {
		qt.Check(t, qt.Equals(test.row.Class().String(), test.class))
		qt.Check(t, qt.Equals(n.Title(&test.row, " · "), test.text))
		qt.Check(t, qt.Not(qt.StringContains(n.Name(&test.row), test.class+" · ")))
	}
	unknown := Row{Region: event.DRAM, Site: n.Site(nil)}
	qt.Check(t, qt.DeepEquals(GroupingOf("class").Keys(&n, &unknown), []string{name.UnknownClass}))
	static := Row{Region: event.CB, Site: binaries, Layout: event.DataflowBuffer.String()}
	qt.Check(t, qt.DeepEquals(GroupingOf("class").Keys(&n, &static), []string{"dataflow buffer"}))
}
