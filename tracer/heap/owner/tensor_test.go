package owner

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
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
		t.Run(version, func(t *testing.T) {
			env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: "3.10", Progress: os.Stderr})
			qt.Assert(t, qt.IsNil(err))
			cmd := env.Command(context.Background(), rig.N150, filepath.Join("testdata", "tensors.py"), tracetest.Programs(t))
			in, err := cmd.StdinPipe()
			qt.Assert(t, qt.IsNil(err))
			defer in.Close()
			out, err := cmd.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			var stderr strings.Builder
			cmd.Stderr = &stderr
			qt.Assert(t, qt.IsNil(cmd.Start()))
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			lines := bufio.NewScanner(out)
			var known map[uint64]struct {
				Address       uint64
				Shape         []uint32
				DType, Layout string
			}
			for lines.Scan() && json.Unmarshal(lines.Bytes(), &known) != nil {
			}
			qt.Assert(t, qt.IsTrue(len(known) > 0), qt.Commentf("%s", stderr.String()))

			p := processOf(t, cmd.Process.Pid)
			machine := p.tensors.Machine
			path := ""
			maps, err := (&host.Proc{}).CodeMappings(cmd.Process.Pid)
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
