package layout

import (
	"fmt"
	"path/filepath"
	"sort"
	"testing"
	"time"
	"ttmem/symbolize"
)

func TestZ(t *testing.T) {
	fs, _ := filepath.Glob("/tmp/w/x/*/*.so")
	for _, f := range fs {
		e, err := symbolize.Open(f)
		if err != nil {
			t.Fatal(err)
		}
		t0 := time.Now()
		l, err := Derive(e)
		if err != nil {
			t.Error(f, err)
			continue
		}
		var ks []string
		for k := range l.Fields {
			ks = append(ks, k)
		}
		sort.Strings(ks)
		s := ""
		for _, k := range ks {
			s += fmt.Sprintf("%s=%v ", k, l.Fields[k])
		}
		fmt.Println(filepath.Base(filepath.Dir(f)), time.Since(t0), l.BuildID[:8], "mesh", l.MeshStride, l.MeshLocal, "mgr", l.Managers, fmt.Sprintf("vt %x %x", l.DeviceVtable, l.MeshVtable), "impl", l.ImplArgs)
		fmt.Println("   ", s)
		fmt.Println("   MISSING", l.Missing)
		st := ""
		for k, p := range l.Probes {
			if p.Stepped {
				st += k + " "
			}
		}
		fmt.Println("   stepped", st)
	}
}
