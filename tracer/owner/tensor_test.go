package owner

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/tracetest"
	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// dtypeOf are the short names of ttnn's data types.
var dtypeOf = map[string]string{"BFLOAT16": "bf16", "BFLOAT8_B": "bfp8", "UINT32": "u32"}

// TestTensorsAreWhatTheLibrarySays: their buffers, shapes, types and layouts.
func TestTensorsAreWhatTheLibrarySays(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.80.0", "0.76.0", "0.72.0", "0.68.0", "0.66.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		t.Run(version, func(t *testing.T) {
			var known map[uint64]struct {
				Address       uint64
				Shape         []uint32
				DType, Layout string
			}
			pid := start(t, ttnn(t, version, "3.10", "tensors.py", tracetest.Programs(t)), &known).pid

			p := processOf(t, pid)
			machine := p.tensors.Machine
			path := ""
			maps, err := (&host.Proc{}).CodeMappings(pid)
			qt.Assert(t, qt.IsNil(err))
			for _, m := range maps {
				if strings.HasSuffix(m.Path, "libtt_metal.so") {
					path = m.Path
				}
			}
			e, err := symbolize.Open(path)
			qt.Assert(t, qt.IsNil(err))
			defer e.Close()
			of, err := layout.Derive(e)
			qt.Assert(t, qt.IsNil(err))
			address := of.Fields["address_"]
			found, _, err := p.heap.Find(Limits{}, all)
			qt.Assert(t, qt.IsNil(err))
			names := map[uint64]string{}
			for _, o := range found {
				names[o.Object] = o.Path.String()
			}
			for at, want := range known {
				got, err := p.tensors.Read(at)
				qt.Assert(t, qt.IsNil(err))
				var b [8]byte
				field := got.Buffer
				for i, add := range address {
					field += uint64(int64(add))
					if i < len(address)-1 {
						qt.Assert(t, qt.IsTrue(machine.Read(field, b[:])))
						field = binary.LittleEndian.Uint64(b[:])
					}
				}
				qt.Assert(t, qt.IsTrue(machine.Read(field, b[:])))
				t.Logf("%-40s %s", names[at], &got)
				qt.Check(t, qt.Equals(binary.LittleEndian.Uint64(b[:]), want.Address))
				qt.Check(t, qt.DeepEquals(got.Shape, want.Shape))
				qt.Check(t, qt.Equals(got.DType, dtypeOf[want.DType]))
				qt.Check(t, qt.Equals(got.Layout, want.Layout))
			}
		})
	}
}
