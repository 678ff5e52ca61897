package tracer

// probeNames are the probes in the order of enum probe in bpf/src/records.h; the
// names are those of tracer/layout, which finds their addresses.
var probeNames = [...]string{
	1:  "buffer_allocated",
	2:  "buffer_deallocate",
	3:  "bank_shards",
	4:  "allocator_clear",
	5:  "device_ready",
	6:  "cb_allocate",
	7:  "cb_deallocate",
	8:  "cb_invalidate",
	9:  "dfb_invalidate",
	10: "program_cbs",
	11: "program_dfbs",
	12: "program_scratchpads",
	13: "cb_mark",
	14: "program_destroy",
	15: "program_compiled",
	16: "kernel_bins",
	17: "program_binaries",
	18: "program_track",
	19: "validate_cb",
	20: "validate_dfb",
	21: "throw",
}
