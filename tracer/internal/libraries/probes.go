package libraries

import (
	"ttmem/bpf"
	"ttmem/tracer/layout"
)

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
	bpf.KernelProbePROBE_PROGRAM_CONFIGURE:   "program_configure",
	bpf.KernelProbePROBE_PROGRAM_BINARIES:    "program_binaries",
	bpf.KernelProbePROBE_PROGRAM_TRACK:       "program_track",
	bpf.KernelProbePROBE_VALIDATE_CB:         "validate_cb",
	bpf.KernelProbePROBE_VALIDATE_DFB:        "validate_dfb",
	bpf.KernelProbePROBE_TRACE_BEGIN:         "trace_begin",
	bpf.KernelProbePROBE_TRACE_END:           "trace_end",
	bpf.KernelProbePROBE_TRACE_REPLAY:        "trace_replay",
	bpf.KernelProbePROBE_TRACE_RELEASE:       "trace_release",
	bpf.KernelProbePROBE_BANKS_SHRINK:        "banks_shrink",
	bpf.KernelProbePROBE_BANKS_RESET:         "banks_reset",
	bpf.KernelProbePROBE_BUFFER_WRITE:        "buffer_write",
	bpf.KernelProbePROBE_BUFFER_REPLICATE:    "buffer_replicate",
	bpf.KernelProbePROBE_BUFFER_READ:         "buffer_read",
}

// exceptionNumbers are the numbers of probes by layout.ExceptionKind.
var exceptionNumbers = [...]bpf.KernelProbe{
	layout.ExceptionMade: bpf.KernelProbePROBE_EXCEPTION, layout.ExceptionMadeOfText: bpf.KernelProbePROBE_EXCEPTION_TEXT,
	layout.ExceptionCaught: bpf.KernelProbePROBE_CATCH, layout.ExceptionRethrown: bpf.KernelProbePROBE_RETHROW,
	layout.ExceptionPointerRethrown: bpf.KernelProbePROBE_RETHROW_EXCEPTION,
}

// exceptionProbes returns the offsets and cookies of probes in a file.
func exceptionProbes(list []layout.ExceptionProbe) (offsets, cookies []uint64) {
	for _, p := range list {
		offsets = append(offsets, p.FileOffset)
		cookies = append(cookies, uint64(exceptionNumbers[p.Kind])|uint64(bpf.KernelCookieCOOKIE_BESIDE))
	}
	return offsets, cookies
}
