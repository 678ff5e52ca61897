package name

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"ttmem/symbolize"
	"ttmem/tracer/event"
)

// A Class is what buffers are for. A nil Class is not known.
type Class struct {
	// Name is the class as --by class and JSON documents have it.
	Name string
	// Noun is what one of its buffers is called beside a number.
	Noun string
	// Why says why tt-metal itself retains such buffers while the program runs. They are never a leak,
	// however often they are allocated. It is "" for those of the program.
	Why string
	// Cached is true if they end with the program cache: device.clear_program_cache() frees them.
	Cached bool
	// words are parts of the names of native functions that allocate such buffers. If match is not nil,
	// a function that has one of them has to match it, too: regular expressions alone are slow.
	words []string
	match *regexp.Regexp
}

// UnknownClass is the group of buffers whose class is not known.
const UnknownClass = "(class not known)"

var (
	tensor = &Class{
		Name: "tensor", Noun: "buffer",
		words: []string{"ttnn::", "<ttnn.", "tensor_impl::", "Tensor::"},
	}
	// plain buffers are those that a program in C++ allocates itself.
	plain = &Class{
		Name: "buffer", Noun: "buffer",
		words: []string{"Buffer::create", "BufferImpl::create", "CreateBuffer"},
	}
	binaries = &Class{
		Name: "kernel binaries", Noun: "kernel binary", Cached: true,
		Why: "written to DRAM when a program first runs, and there as long as it is cached",
		// MeshWorkloadImpl::load_binaries (0.60: MeshWorkload::), and single devices'
		words: []string{"MeshWorkloadImpl::load_binaries", "MeshWorkload::load_binaries", "allocate_kernel_bin_buf_on_device"},
	}
	programCache = &Class{
		Name: "program cache", Noun: "program cache buffer", Cached: true,
		Why: "made together with a program, and there as long as it is cached: configuration, semaphores, global circular buffers",
		// the program factories of operations (create_mesh_workload, create_at,
		// create_descriptor), and their callers on a cache miss
		words: []string{"create_and_cache", "create_mesh_", "create_workload", "create_program", "::create_at", "::create_descriptor", "Factory::create"},
		match: regexp.MustCompile(`\bcreate_and_cache_mesh_workload\b|(Factory|Adapter|Workload|DeviceOperation)(::\w+)*::create_(mesh_workload|workload\w*|at|descriptor|program\w*)\b|Factory::create\b|::create_workload_descriptor\b|\bcreate_program(_at)?\b`),
	}
	trace = &Class{Name: "trace", Noun: "trace buffer"}
)

// classes have a mark in call stacks, of which the first counts. They cover tt-metal 0.60 to 0.81.
var classes = []*Class{
	binaries, programCache,
	{
		Name: "command queues", Noun: "command queue buffer",
		Why:   "of the mesh itself, from its opening to its closing: command queues, dispatch, fabric, profiler",
		words: []string{"MeshDevice", "Device::in", "CommandQueue", "SystemMemoryManager", "DeviceManager", "DevicePool", "Initializer::", "DispatchTopology", "_fabric"},
		match: regexp.MustCompile(`\bMeshDevice(Impl)?::(create|initialize|initialize_impl|init_\w+|MeshDevice(Impl)?)\b|\bDevice::(init_\w+|initialize)\b|MeshCommandQueue(Base)?::(FD|SD)?MeshCommandQueue(Base)?\b|\bSystemMemoryManager::|\b(DeviceManager|DevicePool|FabricFirmwareInitializer|DispatchKernelInitializer)::|\bDispatchTopology::|\b(compile|configure|initialize)_fabric`),
	},
	{Name: "global semaphore", Noun: "global semaphore", words: []string{"GlobalSemaphore::", "GlobalSemaphoreImpl::"}},
	{Name: "global circular buffer", Noun: "global CB", words: []string{"GlobalCircularBuffer::", "GlobalCircularBufferImpl::"}},
	{Name: "socket", Noun: "socket buffer", words: []string{"MeshSocket::", "H2DSocket::", "D2HSocket::", "create_socket_"}},
	tensor,
}

// ClassOf returns the class of a buffer in a region by its call stack; nil if that does not tell.
func ClassOf(stack []event.Frame, region event.Region) *Class {
	if region == event.Trace {
		return trace
	}
	for _, c := range classes {
		if c.allocatesAt(stack) && (c != tensor || isWhole(stack)) {
			return c
		}
	}
	if plain.allocatesAt(stack) && slices.ContainsFunc(stack, isOwnNative) {
		return plain
	}
	return nil
}

// Classes are those of call stacks, each looked up once. The zero value is ready.
type Classes struct{ of map[*event.Stack]*Class }

// Of returns the class of a buffer in a region, by its call stack or else by who holds it; nil if
// neither tells.
func (l *Classes) Of(stack *event.Stack, region event.Region, path, of string) *Class {
	c, known := l.of[stack]
	if !known {
		if l.of == nil {
			l.of = make(map[*event.Stack]*Class)
		}
		c = ClassOf(stack.Frames(), event.DRAM)
		l.of[stack] = c
	}
	if region == event.Trace {
		c = trace
	}
	return cmp.Or(c, ClassByOwner(path, of))
}

// allocatesAt reports whether a native frame allocates buffers of the class.
func (c *Class) allocatesAt(stack []event.Frame) bool {
	return slices.ContainsFunc(stack, func(f event.Frame) bool {
		return f.Kind != event.Python && slices.ContainsFunc(c.words, func(word string) bool { return strings.Contains(f.Name, word) }) &&
			(c.match == nil || c.match.MatchString(f.Name))
	})
}

// isWhole reports whether a stack leads out of tt-metal and ttnn. What is missing of another one may
// have the mark of a class.
func isWhole(stack []event.Frame) bool {
	last := &stack[len(stack)-1]
	return last.Kind == event.Python || symbolize.StartFunctions[last.Name] || isOwnNative(*last)
}

// isOwnNative reports whether a frame is of the native code of the program itself.
func isOwnNative(f event.Frame) bool {
	return f.Kind != event.Python && f.Name != "" && !symbolize.StartFunctions[f.Name] && !inLibrary(&f)
}

// ClassByOwner returns the class of a buffer by who holds it, and the tensor there; nil if that does not
// tell.
func ClassByOwner(path, of string) *Class {
	switch {
	case path == event.OwnerProgramCache:
		return programCache
	case path == event.OwnerBinaries:
		return binaries
	case path == event.OwnerTraces:
		return trace
	case of == "":
		return nil
	}
	if i := slices.IndexFunc(classes, func(c *Class) bool { return c.Name == strings.ReplaceAll(of, "_", " ") }); i >= 0 {
		return classes[i] // global_semaphore
	}
	return tensor
}

// String is the name of the class; "" if it is not known.
func (c *Class) String() string {
	if c == nil {
		return ""
	}
	return c.Name
}

// Mention is the name of the class where a text would be read as of a tensor; "" for tensors, and for
// what is not known.
func (c *Class) Mention() string {
	if c == tensor || c == plain {
		return ""
	}
	return c.String()
}

// Before puts the class of what is no tensor before a text: "kernel binaries · ttnn.add".
func (c *Class) Before(text, separator string) string {
	mention := c.Mention()
	if mention == "" || text == "" {
		return mention + text
	}
	return mention + separator + text
}

// Retained reports whether tt-metal itself retains buffers of the class.
func (c *Class) Retained() bool { return c != nil && c.Why != "" }

// onDevice matches the functions that run an operation on the device and allocate its
// result: ttnn::device_operation, and tt::tt_metal::operation before 0.62.
var onDevice = regexp.MustCompile(`\bdevice_operation::|\boperation::(run|launch)|DeviceOperation\b|\bcreate_output_tensors\b`)

// ResultOfOperation reports whether a stack allocates the result of an operation on the device.
// Weights loaded from the host, for example, are not such results.
func ResultOfOperation(stack []event.Frame) bool {
	return slices.ContainsFunc(stack, func(f event.Frame) bool { return f.Kind != event.Python && onDevice.MatchString(f.Name) })
}
