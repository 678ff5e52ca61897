package name

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"strings"

	"ttmem/tracer/event"
)

// A Retained is something that tt-metal keeps for as long as the program runs: no leak,
// however often it is made.
type Retained struct {
	// Name is what it is, and Why says why it is kept.
	Name, Why string
	match     *regexp.Regexp
}

// retainedRules are compared with the functions of the native frames of a stack. The names
// are those of 0.60 to 0.81.
var retainedRules = []Retained{
	{
		"kernel binaries", "written to DRAM when a program first runs, and there as long as it is cached",
		// MeshWorkloadImpl::load_binaries (0.60: MeshWorkload::), and single devices'
		regexp.MustCompile(`\bMeshWorkload(Impl)?::load_binaries\b|\ballocate_kernel_bin_buf_on_device\b`),
	},
	{
		"program cache", "made together with a program, and there as long as it is cached: configuration, semaphores, global circular buffers",
		// the factories of operations: create_mesh_workload, create_at, create_descriptor
		// of …ProgramFactory, and what calls them on a miss
		regexp.MustCompile(`\bcreate_and_cache_mesh_workload\b|(Factory|Adapter|Workload|DeviceOperation)(::\w+)*::create_(mesh_workload|workload\w*|at|descriptor|program\w*)\b|Factory::create\b|::create_workload_descriptor\b|\bcreate_program(_at)?\b`),
	},
	{
		"command queues", "of the mesh itself, from its opening to its closing: command queues, dispatch, fabric, profiler",
		regexp.MustCompile(`\bMeshDevice(Impl)?::(create|initialize|initialize_impl|init_\w+|MeshDevice(Impl)?)\b|\bDevice::(init_\w+|initialize)\b|MeshCommandQueue(Base)?::(FD|SD)?MeshCommandQueue(Base)?\b|\bSystemMemoryManager::|\b(DeviceManager|DevicePool|FabricFirmwareInitializer|DispatchKernelInitializer)::|\bDispatchTopology::|\b(compile|configure|initialize)_fabric`),
	},
}

// RetainedBy is what of tt-metal's own keeps what was allocated at a stack; nil where it is
// the program's.
func RetainedBy(stack []event.Frame) *Retained {
	for i := range retainedRules {
		for j := range stack {
			if f := &stack[j]; f.Kind != event.Python && retainedRules[i].match.MatchString(f.Name) {
				return &retainedRules[i]
			}
		}
	}
	return nil
}

// Suppressions are stacks that are known and accepted.
type Suppressions struct{ list []*regexp.Regexp }

// ReadSuppressions reads regular expressions, one a line. Lines that are empty or begin
// with # are none. An error begins with the name and the line's number.
func ReadSuppressions(name string, r io.Reader) (*Suppressions, error) {
	s := &Suppressions{}
	lines := bufio.NewScanner(r)
	n := 0
	for lines.Scan() {
		n++
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		match, err := regexp.Compile(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, n, err)
		}
		s.list = append(s.list, match)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", name, n+1, err)
	}
	return s, nil
}

// Has reports whether one of them matches a frame of the stack, as FILE:LINE FUNCTION.
func (s *Suppressions) Has(stack []event.Frame) bool {
	if s == nil {
		return false
	}
	for i := range stack {
		text := FrameText(&stack[i])
		for _, match := range s.list {
			if match.MatchString(text) {
				return true
			}
		}
	}
	return false
}

// onDevice matches what runs an operation on the device, whose result an allocation is:
// ttnn::device_operation, and tt::tt_metal::operation before 0.62.
var onDevice = regexp.MustCompile(`\bdevice_operation::|\boperation::(run|launch)|DeviceOperation\b|\bcreate_output_tensors\b`)

// ResultOfOperation reports whether a stack allocates the result of an operation that
// runs on the device, as weights that are loaded are not.
func ResultOfOperation(stack []event.Frame) bool {
	for i := range stack {
		if f := &stack[i]; f.Kind != event.Python && onDevice.MatchString(f.Name) {
			return true
		}
	}
	return false
}
