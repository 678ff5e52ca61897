package libraries

import "ttmem/bpf"

// probeNames are the names in tracer/layout, which locates the probes, by probe number.
var probeNames = [...]string{
	bpf.KernelProbePROBE_BUFFER_ALLOCATED:    "buffer_allocated",
	bpf.KernelProbePROBE_BUFFER_DEALLOCATE:   "buffer_deallocate",
	bpf.KernelProbePROBE_BANK_SHARDS:         "bank_shards",
	bpf.KernelProbePROBE_ALLOCATOR_CLEAR:     "allocator_clear",
	bpf.KernelProbePROBE_DEVICE_READY:        "device_ready",
	bpf.KernelProbePROBE_CB_ALLOCATE:         "cb_allocate",
	bpf.KernelProbePROBE_CB_DEALLOCATE:       "cb_deallocate",
	bpf.KernelProbePROBE_CB_INVALIDATE:       "cb_invalidate",
	bpf.KernelProbePROBE_DFB_INVALIDATE:      "dfb_invalidate",
	bpf.KernelProbePROBE_PROGRAM_CBS:         "program_cbs",
	bpf.KernelProbePROBE_PROGRAM_DFBS:        "program_dfbs",
	bpf.KernelProbePROBE_PROGRAM_SCRATCHPADS: "program_scratchpads",
	bpf.KernelProbePROBE_CB_MARK:             "cb_mark",
	bpf.KernelProbePROBE_PROGRAM_DESTROY:     "program_destroy",
	bpf.KernelProbePROBE_PROGRAM_COMPILED:    "program_compiled",
	bpf.KernelProbePROBE_KERNEL_BINS:         "kernel_bins",
	bpf.KernelProbePROBE_PROGRAM_BINARIES:    "program_binaries",
	bpf.KernelProbePROBE_PROGRAM_TRACK:       "program_track",
	bpf.KernelProbePROBE_VALIDATE_CB:         "validate_cb",
	bpf.KernelProbePROBE_VALIDATE_DFB:        "validate_dfb",
	bpf.KernelProbePROBE_THROW:               "throw",
}
