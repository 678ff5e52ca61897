package layout

import (
	"fmt"
	"regexp"
	"strings"

	"ttmem/symbolize"
)

// Probe is a place to probe in a library.
type Probe struct {
	// Symbol is the function's mangled name.
	Symbol string
	// Size is the function's size in bytes.
	Size uint64
	// Addr is the address of the function, and ProbeAddr the address of the instruction to probe:
	// the first one that the kernel can emulate, or else the first one. The arguments there are
	// still those at the function's entry.
	Addr, ProbeAddr uint64
	// FileOffset is the file offset of the instruction at ProbeAddr.
	FileOffset uint64
	// Stepped is true if the kernel has to execute the instruction out of line, which costs 9.7
	// µs instead of 0.5 µs.
	Stepped bool
}

// point is a function to probe.
type point struct {
	name string
	// function is the name, newest first. Names drift; the part that determines the
	// arguments is fixed.
	function []string
	// parameters matches the rest of the mangled name: it determines the arguments'
	// registers.
	parameters string
	// since names a function that every library with the probed feature has. In a library without
	// it, nothing is missing.
	since string
}

const (
	// coreRangeSet matches `const CoreRangeSet&`: from 0.64.1 on in a namespace.
	coreRangeSet = `RK(?:\d*[A-Za-z_0-9]*?)?12CoreRangeSetE?`
	iDevice      = `PK?NS0_7IDeviceE`

	// dataflowBuffers are in libraries from 0.67 on, scratchpads from 0.75 on.
	dataflowBuffers = "detail::ProgramImpl::allocate_dataflow_buffers"
	scratchpads     = "detail::ProgramImpl::allocate_scratchpads"
	deallocateCBs   = "detail::ProgramImpl::deallocate_circular_buffers"

	// the host writes a buffer, from 0.62 on
	writeShards      = "distributed::MeshCommandQueueBase::enqueue_write_shards_nolock"
	sharedMeshBuffer = `RKSt10shared_ptrINS1_10MeshBufferEE`

	// a mesh keeps its traces itself before 0.66, and in its MeshDeviceImpl from then on
	inImpl, inMesh = "distributed::MeshDeviceImpl::", "distributed::MeshDevice::"
	beginTrace     = "begin_mesh_trace(hRK"
	traceID        = `N\w*10StrongTypeIjNS1_14MeshTraceIdTagEEE`
)

// points are the functions to probe.
var points = []point{
	{name: "buffer_allocate", function: []string{implAllocate, bufferAllocate}, parameters: `v|RNS0_6BufferE`},
	{name: "buffer_allocated", function: []string{"GraphTracker::track_allocate"}, parameters: `PKNS0_6BufferE`},
	{name: "buffer_deallocate", function: []string{implDeallocate, bufferDeallocate}, parameters: `v|RNS0_6BufferE`},
	// (size, page_size, bottom_up, grid, num_shards, …): rsi, rdx, ecx, r8, r9
	{name: "bank_allocate", function: []string{"BankManager::allocate_buffer"}, parameters: `mmb` + coreRangeSet + `St8optionalIjE.*`},
	{name: "allocator_clear", function: []string{
		"AllocatorImpl::deallocate_buffers", "Allocator::deallocate_buffers",
	}, parameters: `v`},
	{name: "device_ready", function: []string{"SubDeviceManagerTracker::C1"},
		parameters: `PNS0_7IDeviceEOSt10unique_ptrINS0_(?:9Allocator|13AllocatorImpl)E.*`},
	// (core ranges, address, bytes, globally allocated, device)
	{name: "cb_allocate", function: []string{"GraphTracker::track_allocate_cb"}, parameters: coreRangeSet + `mmb` + iDevice},
	// before 0.70.1 a program keeps its circular buffers until it is destroyed
	{name: "cb_deallocate", function: []string{deallocateCBs}, parameters: `v`, since: deallocateCBs},
	{name: "cb_invalidate", function: []string{invalidateCBs}, parameters: `v`},
	{name: "dfb_invalidate", function: []string{invalidateDFBs}, parameters: `v`,
		since: dataflowBuffers},
	{name: "program_cbs", function: []string{allocateCBs}, parameters: iDevice},
	{name: "program_dfbs", function: []string{dataflowBuffers}, parameters: iDevice, since: dataflowBuffers},
	{name: "program_scratchpads", function: []string{scratchpads}, parameters: iDevice, since: scratchpads},
	// (address, bytes, base)
	{name: "cb_mark", function: []string{allocatorMark}, parameters: `mmm`},
	{name: "program_destroy", function: []string{"detail::ProgramImpl::D1", "detail::ProgramImpl::D2"}, parameters: `v`},
	{name: "program_compiled", function: []string{programPopulate}, parameters: iDevice},
	// (device, program, force slow dispatch): slow dispatch, and the programs of the runtime
	{name: "program_configure", function: []string{"slow_dispatch::ConfigureDeviceWithProgram", "detail::ConfigureDeviceWithProgram"},
		parameters: `(?:P|R)NS0_7IDeviceERNS0_7ProgramEb`},
	{name: "program_binaries", function: []string{
		"distributed::MeshWorkloadImpl::load_binaries",
		"distributed::MeshWorkload::load_binaries",
	}, parameters: `RNS1_16MeshCommandQueueE.*`},
	{name: "program_track", function: []string{"GraphTracker::track_program"}, parameters: `PNS0_7ProgramE` + iDevice},
	{name: "validate_cb", function: []string{"detail::ProgramImpl::validate_circular_buffer_region"}, parameters: iDevice},
	{name: "validate_dfb", function: []string{validateDFBs}, parameters: iDevice,
		since: dataflowBuffers},
	// (queue, id); the number of the trace is made before
	{name: "trace_begin", function: []string{inImpl + beginTrace, inMesh + beginTrace}, parameters: traceID, since: inMesh + beginTrace},
	{name: "trace_end", function: []string{inImpl + "end_mesh_trace(hRK", inMesh + "end_mesh_trace(hRK"}, parameters: traceID,
		since: inMesh + beginTrace},
	// (queue, id, blocking)
	{name: "trace_replay", function: []string{inImpl + "replay_mesh_trace(hRK", inMesh + "replay_mesh_trace(hRK"}, parameters: traceID + `b`,
		since: inMesh + beginTrace},
	// (id)
	{name: "trace_release", function: []string{inImpl + "release_mesh_trace(RK", inMesh + "release_mesh_trace(RK"}, parameters: traceID,
		since: inMesh + beginTrace},
	// (buffer, shards, blocking, …): before 0.72 a shared_ptr to the buffer
	{name: "buffer_write", function: []string{writeShards}, parameters: `(?:RNS1_10MeshBufferE|` + sharedMeshBuffer + `)RKSt6vectorI.*`, since: writeShards},
	// (buffer, data, …): the same data for several chips
	{name: "buffer_replicate", function: []string{"distributed::MeshCommandQueueBase::enqueue_write_shard_to_sub_grid"},
		parameters: `RKNS1_10MeshBufferEPKv.*`, since: writeShards},
	// (shards, buffer, blocking, …)
	{name: "buffer_read", function: []string{"distributed::MeshCommandQueueBase::enqueue_read_shards_nolock"},
		parameters: `RKSt6vectorI.*E` + sharedMeshBuffer + `b.*`, since: writeShards},
	// (type of buffer, bytes, bottom_up)
	{name: "banks_shrink", function: []string{
		"AllocatorImpl::shrink_allocator_size", "Allocator::shrink_allocator_size",
	}, parameters: `RKNS0_10BufferTypeEmb`},
	{name: "banks_reset", function: []string{
		"AllocatorImpl::reset_allocator_size", "Allocator::reset_allocator_size",
	}, parameters: `RKNS0_10BufferTypeE`},
}

// probes finds where to probe the library.
func (d *deriver) probes() {
	for _, p := range points {
		f, err := d.function(p.function...)
		if err == nil && strings.HasPrefix(p.function[0], inImpl) {
			f, err = d.ofMesh(f, p.function[1])
		}
		if err == nil {
			err = p.checkParameters(f.Name)
		}
		if err != nil {
			if p.since == "" || len(d.e.WithPrefix(mangle(p.since))) > 0 {
				d.miss(p.name, err.Error())
			}
			continue
		}
		switch p.name {
		case "buffer_allocate":
			d.layout.AllocateImpl = f
		case "buffer_deallocate":
			d.layout.ImplArgs = strings.HasPrefix(f.Name, mangle(implDeallocate))
		case "buffer_write":
			d.layout.WritesShared = strings.HasPrefix(f.Name, mangle(writeShards)+sharedMeshBuffer)
		}
		d.place(p.name, f)
	}
	d.attempt("bank_shards", d.shards)
	d.exceptions()
}

// ofMesh returns the function of a MeshDevice with this name instead of that of its MeshDeviceImpl, if it
// does not call the latter: the compiler has inlined it.
func (d *deriver) ofMesh(impl symbolize.Symbol, name string) (symbolize.Symbol, error) {
	fl, err := d.flowOf(name)
	if err != nil {
		return impl, err
	}
	for _, s := range fl.steps {
		if fl.callee(s) == impl.Name {
			return impl, nil
		}
	}
	return fl.fn, nil
}

// checkParameters checks a function's parameters by its mangled name: they determine the
// registers that the probe reads.
func (p *point) checkParameters(mangled string) error {
	for _, name := range p.function {
		rest, ok := strings.CutPrefix(mangled, mangle(name))
		if ok && regexp.MustCompile(`^(?:`+p.parameters+`)$`).MatchString(rest) {
			return nil
		}
	}
	return fmt.Errorf("%s has unexpected parameters: %s", readable(p.function[0]), mangled)
}
