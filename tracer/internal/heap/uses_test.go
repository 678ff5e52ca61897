package heap

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/layout"
)

// What a program uses is read whole or not at all. Libraries before 0.72 place no dataflow buffers in tensors.
func TestUsesNeedAllTheirFields(t *testing.T) {
	plan := func(missing ...string) bpf.KernelLayout {
		l := &Library{Layout: &layout.Layout{Fields: make(map[string]layout.Chain)}}
		for i, name := range layout.UsesFields {
			l.Layout.Fields[name] = layout.Chain{int32(8 * (i + 1))}
		}
		for _, name := range missing {
			delete(l.Layout.Fields, name)
			l.Layout.Missing = append(l.Layout.Missing, layout.Missing{Name: name})
		}
		l.planUses()
		return l.Kernel
	}
	whole := plan()
	qt.Check(t, qt.IsTrue(whole.ProgramKernels != bpf.NoField && whole.ProgramDataflowBuffers != bpf.NoField))
	for _, name := range layout.UsesFields {
		qt.Check(t, qt.Equals(plan(name).ProgramKernels, bpf.NoField), qt.Commentf("%s", name))
	}
	old := &Library{Layout: &layout.Layout{Fields: map[string]layout.Chain{"ProgramImpl.kernels_": {8}}}}
	old.planUses()
	qt.Check(t, qt.Equals(old.Kernel.ProgramKernels, 8))
	qt.Check(t, qt.Equals(old.Kernel.ProgramDataflowBuffers, bpf.NoField))
}
