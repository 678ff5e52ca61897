package hostile

import (
	"debug/elf"
	"os/exec"
	"path/filepath"
	"testing"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// layoutOf is what an attacker can find out of the library: where its objects have their
// fields, and where the probes are.
func layoutOf(t *testing.T, library string) map[string]any {
	t.Helper()
	file, err := symbolize.Open(library)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l, err := layout.Derive(file)
	if err != nil {
		t.Fatal(err)
	}
	probes := map[string]uint64{}
	bias := uint64(0) // from where the file is mapped as a whole to its load bias
	for name, p := range l.Probes {
		probes[name] = p.FileOffset
		bias = p.FileOffset - p.ProbeAddr
	}
	return map[string]any{
		"fields": l.Fields, "probes": probes, "bias": int64(bias), "managers": l.Managers, "free_list": l.FreeList,
		"device_vtable": l.DeviceVtable, "mesh_vtable": l.MeshVtable, "mesh_stride": l.MeshStride, "mesh_local": l.MeshLocal,
	}
}

// copyInterpreter lets all users read the interpreter that the victim runs, and tells them
// where its state lies.
func (r *hostileRig) copyInterpreter(t *testing.T) {
	t.Helper()
	maps, err := new(host.Proc).FileMappings(r.victim.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range maps {
		file, err := symbolize.Open(m.Path)
		if err != nil {
			continue
		}
		defer file.Close()
		found, err := python.Find(file)
		if err != nil {
			continue
		}
		to := filepath.Join(public, "interpreter")
		if out, err := exec.Command("cp", m.Path, to).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		var code [][3]uint64
		end := uint64(0)
		for _, p := range file.ProgramHeaders() {
			if p.Type != elf.PT_LOAD {
				continue
			}
			end = max(end, p.Vaddr+p.Memsz)
			if p.Flags&elf.PF_X != 0 {
				code = append(code, [3]uint64{p.Off &^ 0xfff, p.Vaddr &^ 0xfff, p.Filesz + p.Off&0xfff})
			}
		}
		r.context["python"], r.context["python_code"] = to, code
		r.context["python_key"], r.context["python_end"] = found.Runtime+found.Key, (end+0x1fff)&^0xfff
		return
	}
	t.Fatal("the victim runs no interpreter that is known")
}
