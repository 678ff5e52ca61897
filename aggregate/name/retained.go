package name

import (
	"regexp"
	"slices"

	"ttmem/tracer/event"
)

// Retained is a kind of buffer that tt-metal itself retains while the program runs. It is never a
// leak, however often it is allocated.
type Retained struct {
	// Name is the kind, and Why says why the runtime retains it.
	Name, Why string
	// Cached is true if it ends with the program cache: device.clear_program_cache() frees it.
	Cached bool
	match  *regexp.Regexp
}

// retainedRules are compared with the functions of native frames. They cover tt-metal 0.60
// to 0.81.
var retainedRules = []Retained{
	{
		"kernel binaries", "written to DRAM when a program first runs, and there as long as it is cached", true,
		// MeshWorkloadImpl::load_binaries (0.60: MeshWorkload::), and single devices'
		regexp.MustCompile(`\bMeshWorkload(Impl)?::load_binaries\b|\ballocate_kernel_bin_buf_on_device\b`),
	},
	{
		"program cache", "made together with a program, and there as long as it is cached: configuration, semaphores, global circular buffers", true,
		// the program factories of operations (create_mesh_workload, create_at,
		// create_descriptor), and their callers on a cache miss
		regexp.MustCompile(`\bcreate_and_cache_mesh_workload\b|(Factory|Adapter|Workload|DeviceOperation)(::\w+)*::create_(mesh_workload|workload\w*|at|descriptor|program\w*)\b|Factory::create\b|::create_workload_descriptor\b|\bcreate_program(_at)?\b`),
	},
	{
		"command queues", "of the mesh itself, from its opening to its closing: command queues, dispatch, fabric, profiler", false,
		regexp.MustCompile(`\bMeshDevice(Impl)?::(create|initialize|initialize_impl|init_\w+|MeshDevice(Impl)?)\b|\bDevice::(init_\w+|initialize)\b|MeshCommandQueue(Base)?::(FD|SD)?MeshCommandQueue(Base)?\b|\bSystemMemoryManager::|\b(DeviceManager|DevicePool|FabricFirmwareInitializer|DispatchKernelInitializer)::|\bDispatchTopology::|\b(compile|configure|initialize)_fabric`),
	},
}

// RuntimeRetained returns the kind of buffer that tt-metal allocated at a stack for itself; nil
// if the buffer belongs to the program.
func RuntimeRetained(stack []event.Frame) *Retained {
	for i := range retainedRules {
		if anyNative(stack, retainedRules[i].match) {
			return &retainedRules[i]
		}
	}
	return nil
}

// anyNative reports whether an expression matches the function of a native frame.
func anyNative(stack []event.Frame, match *regexp.Regexp) bool {
	return slices.ContainsFunc(stack, func(f event.Frame) bool { return f.Kind != event.Python && match.MatchString(f.Name) })
}

// onDevice matches the functions that run an operation on the device and allocate its
// result: ttnn::device_operation, and tt::tt_metal::operation before 0.62.
var onDevice = regexp.MustCompile(`\bdevice_operation::|\boperation::(run|launch)|DeviceOperation\b|\bcreate_output_tensors\b`)

// ResultOfOperation reports whether a stack allocates the result of an operation on the device.
// Weights loaded from the host, for example, are not such results.
func ResultOfOperation(stack []event.Frame) bool { return anyNative(stack, onDevice) }
