package layout

import (
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

const (
	programRuntimeID = "_ZNK2tt8tt_metal7Program14get_runtime_idE"
	programID        = "_ZNK2tt8tt_metal7Program6get_idE"
	programImplID    = "_ZNK2tt8tt_metal6detail11ProgramImpl6get_idE"
	programBinBuffer = "_ZN2tt8tt_metal6detail11ProgramImpl33allocate_kernel_bin_buf_on_deviceE"
	programPopulate  = "_ZN2tt8tt_metal6detail11ProgramImpl22populate_dispatch_dataE"
)

// programs finds the id of a program and the binaries of its kernels.
func (d *deriver) programs() {
	d.field("ProgramImpl.id", 8, from(result, programImplID))
	runtime, err := d.chain(8, from(result, programRuntimeID))
	if err == nil && len(runtime) == 2 {
		d.layout.Fields["ProgramImpl.runtime_id"] = runtime[1:]
		d.layout.Fields["Program.impl"] = runtime[:1]
	} else {
		if err == nil {
			err = fmt.Errorf("Program::get_runtime_id() returns %v", runtime)
		}
		d.miss("Program.impl", err.Error())
	}
	// get_id() of the program, if it is exported, must agree
	impl := d.layout.Fields["Program.impl"]
	if id, err := d.chain(8, from(result, programID)); err == nil && impl != nil && (len(id) != 2 || id[0] != impl[0]) {
		delete(d.layout.Fields, "Program.impl")
		d.miss("Program.impl", fmt.Sprintf("get_runtime_id() has it at %v, get_id() at %v", impl, id))
	}
	d.field("ProgramImpl.binary_data(begin)", 8,
		from(firstVector, programBinBuffer),
		from(assigned, programPopulate))
}

// vectorAssign is std::vector<uint32_t>::operator=(const vector&).
const vectorAssign = "_ZNSt6vectorIjSaIjEEaSERKS1_"

// assigned finds the vector of words that populate_dispatch_data assigns to.
func assigned(f *flow) (Chain, error) {
	return f.first(func(s *step) (Chain, bool) {
		if s.op != x86asm.CALL || f.callee(s) != vectorAssign {
			return nil, false
		}
		return direct(s.state.arg(0).chain(0))
	})
}
