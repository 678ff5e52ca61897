package layout

import (
	"fmt"

	"golang.org/x/arch/x86/x86asm"

	"ttmem/symbolize"
)

// Probe is a place in a library where something that matters happens.
type Probe struct {
	// Symbol is the function's mangled name.
	Symbol string
	// Addr is the function, ProbeAddr the instruction that is probed, and
	// FileOffset where that lies in the file.
	Addr, ProbeAddr, FileOffset uint64
	// Size is the function's bytes.
	Size uint64
	// Stepped: the kernel has to execute the instruction out of line, which
	// costs about twenty times what it costs to emulate it.
	Stepped bool
	// Found: the other fields are set.
	Found bool
}

// probeList is what is probed: the names of the functions as they begin in the
// releases, newest first, and what is not seen without.
var probeList = []struct {
	name     string
	prefixes []string
	costs    string
	// optional: releases that lack it have nothing to be seen there
	optional bool
}{
	{"buffer_allocated", []string{trackAllocate}, "allocations are not seen", false},
	{"buffer_deallocate", []string{deallocImplNew, deallocImpl}, "deallocations are not seen", false},
	{"allocator_clear", []string{"13AllocatorImpl18deallocate_buffersEv", "9Allocator18deallocate_buffersEv"}, "buffers dropped by closing a device count as held", false},
	{"device_ready", []string{"23SubDeviceManagerTrackerC2E", "23SubDeviceManagerTrackerC1E"}, "devices are seen from their first allocation on only", false},
	{"cb_allocate", []string{"12GraphTracker17track_allocate_cbE"}, "circular buffers are not seen", false},
	{"cb_deallocate", []string{"6detail11ProgramImpl27deallocate_circular_buffersEv"}, "", true},
	{"cb_invalidate", []string{"6detail11ProgramImpl37invalidate_circular_buffer_allocationEv"}, "circular buffers that are placed anew count twice", false},
	{"dfb_invalidate", []string{"6detail11ProgramImpl37invalidate_dataflow_buffer_allocationEv"}, "", true},
	{"program_cbs", []string{"6detail11ProgramImpl25allocate_circular_buffersE"}, "circular buffers cannot be told apart by program", false},
	{"program_dfbs", []string{"6detail11ProgramImpl25allocate_dataflow_buffersE"}, "", true},
	{"program_scratchpads", []string{"6detail11ProgramImpl20allocate_scratchpadsE"}, "", true},
	{"cb_mark", []string{"6detail11ProgramImpl23CircularBufferAllocator12mark_addressE"}, "", true},
	{"program_destroy", []string{"6detail11ProgramImplD2Ev", "6detail11ProgramImplD1Ev"}, "the circular buffers and kernels of a destroyed program count as held", false},
	{"program_compiled", []string{programPop}, "kernels are not seen", false},
	{"kernel_bins", []string{"16program_dispatch20finalize_kernel_binsE"}, "what kernels take of L1 is not seen", false},
	{"program_binaries", []string{"11distributed16MeshWorkloadImpl13load_binariesE", "11distributed12MeshWorkload13load_binariesE"}, "", true},
	{"program_track", []string{trackProgram}, "", true},
	{"validate_cb", []string{"6detail11ProgramImpl31validate_circular_buffer_regionE"}, "clashes of circular buffers with tensors are not seen", false},
	{"validate_dfb", []string{"6detail11ProgramImpl31validate_dataflow_buffer_regionE"}, "", true},
}

func wantedPrefixes() []string {
	list := fieldFunctions()
	for _, p := range probeList {
		list = append(list, p.prefixes...)
	}
	return list
}

// probes finds where to probe.
func (d *deriver) probes() {
	for _, p := range probeList {
		var f symbolize.Symbol
		for _, prefix := range p.prefixes {
			if f = d.function(prefix); f.Addr != 0 {
				break
			}
		}
		if f.Addr == 0 {
			if !p.optional {
				d.miss("probe "+p.name, fmt.Sprintf("no function %s", symbolize.Demangle("_ZN"+namespace+p.prefixes[0])), p.costs)
			}
			continue
		}
		d.place(p.name, f)
	}
	d.shards()
	if addr, ok := d.elf.PLT("__cxa_throw"); ok {
		d.placeAt("throw", symbolize.Symbol{Name: "__cxa_throw", Addr: addr}, addr)
	} else {
		d.miss("probe throw", "the library throws nothing", "failed allocations are not seen")
	}
}

// place puts a probe on a function's first instruction.
func (d *deriver) place(name string, f symbolize.Symbol) { d.placeAt(name, f, f.Addr) }

func (d *deriver) placeAt(name string, f symbolize.Symbol, probe uint64) {
	offset, ok := d.elf.FileOffset(probe)
	if !ok {
		d.miss("probe "+name, "its function lies outside the file", "it cannot be probed")
		return
	}
	d.Probes[name] = Probe{
		Symbol: f.Name, Addr: f.Addr, Size: f.Size, ProbeAddr: probe, FileOffset: offset,
		Stepped: !d.emulated(probe), Found: true,
	}
}

// shards finds where BankManager::allocate_buffer counts the cores that shards
// may lie on: only sharded buffers get there, and the registers still hold what
// it was asked for.
func (d *deriver) shards() {
	const name = "bank_shards"
	f := d.function(bankAllocate)
	at := d.first(f, func(s *step) bool {
		return s.in.Op == x86asm.CALL && contains(s.call, "12CoreRangeSet9num_coresEv")
	})
	if at == nil {
		d.miss("probe "+name, "BankManager::allocate_buffer counts no cores", "sharded buffers are not counted")
		return
	}
	for i, arg := range [...]int{1, 2, 5} { // size, page size, shards
		d.ShardRegisters[i] = -1
		for n, v := range at.regs.at {
			// calls leave these alone, so that no copy of a moment is taken
			if calleeSaved(n) && v.known && v.arg == arg && len(v.loads) == 0 && v.add == 0 {
				d.ShardRegisters[i] = n
			}
		}
		if d.ShardRegisters[i] < 0 {
			d.miss("probe "+name, "BankManager::allocate_buffer keeps its arguments elsewhere", "sharded buffers are not counted")
			return
		}
	}
	d.placeAt(name, f, at.addr)
}

func calleeSaved(register int) bool { return register == 3 || register == 5 || register >= 12 }

// emulated reports whether the kernel can emulate the instruction at an address.
func (d *deriver) emulated(addr uint64) bool {
	code, err := d.elf.Text(addr, 16)
	if err != nil {
		return false
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil {
		return false
	}
	switch in.Op {
	case x86asm.PUSH, x86asm.NOP:
		return true
	case x86asm.CALL, x86asm.JMP:
		_, relative := in.Args[0].(x86asm.Rel)
		return relative
	}
	return false
}
