package layout

import "fmt"

// programs finds the id of a program and the binaries of its kernels.
func (d *deriver) programs() {
	d.field("ProgramImpl.id", 8, from(result, "detail::ProgramImpl::get_id const"))
	runtime, _, err := d.chain(8, from(result, "Program::get_runtime_id const"))
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
	if id, _, err := d.chain(8, from(result, "Program::get_id const")); err == nil && impl != nil && (len(id) != 2 || id[0] != impl[0]) {
		delete(d.layout.Fields, "Program.impl")
		d.miss("Program.impl", fmt.Sprintf("get_runtime_id() has it at %v, get_id() at %v", impl, id))
	}
	d.field("ProgramImpl.binary_data(begin)", 8,
		from(firstVector, "detail::ProgramImpl::allocate_kernel_bin_buf_on_device"),
		// std::vector<uint32_t>::operator=(const vector&)
		from(handedTo("_ZNSt6vectorIjSaIjEEaSERKS1_"), programPopulate))
}

const programPopulate = "detail::ProgramImpl::populate_dispatch_data"
