package layout

import (
	"fmt"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize/x86"
)

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
	d.runtimePrograms()
}

// runtimePrograms finds the programs of a Device that are not a user's: those of its command queue,
// in a vector, and that of the routers of the fabric. Device passes them to functions that write
// them to its cores.
func (d *deriver) runtimePrograms() {
	d.field("Device.fabric_program_", 8,
		from(second(configureProgram), "Device::configure_fabric"),
		from(second("24WriteRuntimeArgsToDevice"), "Device::configure_fabric"))
	// the first element of the vector, which is kept in the frame
	d.field("Device.command_queue_programs_", 8,
		from(element(spilled(configureProgram, x86.RSI)), "Device::configure_command_queue_programs"),
		from(element(spilled("16finalize_offsets", x86.RDI)), "Device::configure_command_queue_programs"))
}

// configureProgram is part of the mangled name of the function that writes a program to the cores of
// a chip without a command queue.
const configureProgram = "26ConfigureDeviceWithProgram"

// second finds the field that a function passes as second argument to a function with this part in
// its name.
func second(part string) finder {
	return calling(part, func(s *x86.Step) (Chain, bool) { return s.State.Arg(1).Loaded(0) })
}

// maxSpill is how many instructions before a call load its arguments.
const maxSpill = 8

// spilled finds the field that a function passes in a register to a function with this part in its
// name, if it keeps the value in its frame meanwhile: all stores to that place must be of that field.
func spilled(part string, register int) finder {
	return func(f *flow) (Chain, error) {
		for i := range f.steps {
			if !strings.Contains(f.callee(f.steps[i]), part) {
				continue
			}
			at, ok := f.slotOf(i, register)
			if !ok {
				return nil, errShape
			}
			return only(f.all(func(s *x86.Step) (Chain, bool) {
				to, ok := s.Access()
				place, inFrame := to.InFrame()
				if _, n, _ := s.Mem(); !ok || !inFrame || place != at || n != 0 || s.Op != x86asm.MOV {
					return nil, false
				}
				c, _ := s.Operand(1).Loaded(0)
				return c, true
			}))
		}
		return nil, errShape
	}
}

// slotOf returns the place in the frame from which a register was loaded before step i, directly or
// through another register, or from the first word there.
func (f *flow) slotOf(i, register int) (at int32, ok bool) {
	for j := i - 1; j >= max(0, i-maxSpill); j-- {
		s := f.steps[j]
		if to, _, isRegister := x86.Register(s.Args[0]); !isRegister || to != register || s.Op != x86asm.MOV {
			continue
		}
		if from, _, isRegister := x86.Register(s.Args[1]); isRegister {
			register = from
			continue
		}
		a, _ := s.Access()
		if at, ok = a.InFrame(); ok {
			return at, true
		}
		m, _, _ := s.Mem()
		if register, _, ok = x86.Register(m.Base); !ok || m.Disp != 0 || m.Index != 0 {
			return 0, false
		}
	}
	return 0, false
}

const programPopulate = "detail::ProgramImpl::populate_dispatch_data"
