package name

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// TestClassByStack uses shortened stacks of real programs on ttnn 0.81, innermost first. _start ends a
// stack that is whole.
func TestClassByStack(t *testing.T) {
	const mesh = "tt::tt_metal::BufferImpl::create tt::tt_metal::distributed::MeshBuffer::create "
	const tensor = mesh + "tt::tt_metal::tensor_impl::allocate_device_buffer "
	for name, test := range map[string]struct {
		stack, want string
	}{
		"configuration of a pooling program": {tensor + `tt::tt_metal::distributed::MeshCommandQueue::enqueue_write_tensor
			ttnn::operations::sliding_window::move_config_tensor_to_device ttnn::operations::pool::Pool2D::MultiCore::create_workload_descriptor
			ttnn::device_operation::MeshDeviceOperationAdapter::DescriptorMeshWorkloadAdapter::create_mesh_workload
			ttnn::device_operation::detail::create_and_cache_mesh_workload::{lambda#1} ttnn::device_operation::detail::launch ttnn::prim::pool2d _start`, "program cache"},
		"a semaphore of a cached program": {`tt::tt_metal::GlobalSemaphoreImpl::setup_buffer tt::tt_metal::GlobalSemaphore::GlobalSemaphore
			ttnn::operations::experimental::ccl::HighBwAllGatherUnicastFactory::create_mesh_workload _start`, "program cache"},
		"binaries of kernels": {mesh + `tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries
			tt::tt_metal::distributed::FDMeshCommandQueue::enqueue_mesh_workload ttnn::device_operation::detail::launch _start`, "kernel binaries"},
		"of the mesh": {mesh + `tt::tt_metal::distributed::D2HSocket::D2HSocket tt::tt_metal::distributed::MeshDeviceImpl::init_realtime_profiler_socket
			tt::tt_metal::distributed::MeshDeviceImpl::initialize_impl _start`, "command queues"},
		"the result of an operation": {tensor + `ttnn::create_device_tensor ttnn::operations::binary_ng::BinaryNgDeviceOperation::create_output_tensors
			ttnn::device_operation::detail::launch ttnn::prim::binary_ng _start`, "tensor"},
		"a tensor that is written": {tensor + `tt::tt_metal::distributed::MeshCommandQueue::enqueue_write_tensor
			tt::tt_metal::to_device ttnn::Tensor::to_device _start`, "tensor"},
		"a tensor on the stack of a thread":  {tensor + "ttnn::create_device_tensor std::thread::_State_impl start_thread", "tensor"},
		"a tensor that C++ asks for":         {tensor + "ttnn::empty Trainer::step", "tensor"},
		"a semaphore of the program's own":   {mesh + "tt::tt_metal::GlobalSemaphoreImpl::setup_buffer ttnn::global_semaphore::create_global_semaphore _start", "global semaphore"},
		"a circular buffer of the program's": {mesh + "tt::tt_metal::experimental::GlobalCircularBuffer::setup_cb_buffers ttnn::global_circular_buffer::create_global_circular_buffer _start", "global circular buffer"},
		"of a socket":                        {mesh + "tt::tt_metal::distributed::MeshSocket::MeshSocket ttnn::create_mesh_socket _start", "socket"},
		"a buffer that C++ asks for":         {mesh + "tt::tt_metal::CreateBuffer Trainer::step _start", "buffer"},
		// what is missing may be the mark of another class
		"a stack that ends inside of ttnn":     {tensor + "ttnn::Tensor::to_device ttnn::operations::sliding_window::move_config_tensor_to_device", ""},
		"a stack that ends inside of tt-metal": {mesh, ""},
		"a stack without names":                {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			frames := native(strings.Fields(test.stack)...)
			for i := range frames {
				frames[i].Module = "" // names alone have to do
			}
			qt.Check(t, qt.Equals(ClassOf(frames, event.L1).String(), test.want))
			qt.Check(t, qt.Equals(ClassOf(frames, event.Trace).String(), "trace"))
		})
	}
}

func TestPythonFunctionHasNoClass(t *testing.T) {
	frames := []event.Frame{{Kind: event.Python, Name: "Factory::create_mesh_workload", File: "model.py", Line: 1}}
	qt.Check(t, qt.IsNil(ClassOf(frames, event.DRAM)))
}

// TestClassByOwner: without a stack that tells, who holds a buffer does.
func TestClassByOwner(t *testing.T) {
	for _, test := range []struct{ path, what, want string }{
		{event.OwnerProgramCache, "", "program cache"},
		{event.OwnerBinaries, "", "kernel binaries"},
		{event.OwnerTraces, "", "trace"},
		{"model.layers[0].wq", "bf16[32,32] TILE", "tensor"},
		{"semaphores[1]", "global_semaphore", "global semaphore"},
		{"ring", "global_circular_buffer", "global circular buffer"},
		{"model.layers[0].wq", "", ""}, // several of different types
		{"", "", ""},
	} {
		qt.Check(t, qt.Equals(ClassByOwner(test.path, test.what).String(), test.want), qt.Commentf("%s %s", test.path, test.what))
		var classes Classes
		qt.Check(t, qt.Equals(classes.Of(nil, event.DRAM, test.path, test.what).String(), test.want))
	}
	var classes Classes
	stack := event.StackOf(native("tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries"))
	for range 2 {
		qt.Check(t, qt.Equals(classes.Of(stack, event.DRAM, event.OwnerProgramCache, "").String(), "kernel binaries"))
		qt.Check(t, qt.Equals(classes.Of(stack, event.Trace, "", "").String(), "trace"))
	}
}

// TestRetainedClasses: the runtime retains what has a reason, and only what is no tensor is mentioned.
func TestRetainedClasses(t *testing.T) {
	for _, c := range append([]*Class{plain, trace}, classes...) {
		retained := c.Name == "kernel binaries" || c.Name == "program cache" || c.Name == "command queues"
		qt.Check(t, qt.Equals(c.Retained(), retained), qt.Commentf("%s", c))
		qt.Check(t, qt.Equals(c.Mention() != "", c != tensor && c != plain), qt.Commentf("%s", c))
		qt.Check(t, qt.Not(qt.Equals(c.Noun, "")), qt.Commentf("%s", c))
	}
	var unknown *Class
	qt.Check(t, qt.IsFalse(unknown.Retained()))
	qt.Check(t, qt.Equals(unknown.Before("ttnn.add", " · "), "ttnn.add"))
	qt.Check(t, qt.Equals(tensor.Before("ttnn.add", " · "), "ttnn.add"))
	qt.Check(t, qt.Equals(binaries.Before("ttnn.add", " · "), "kernel binaries · ttnn.add"))
	qt.Check(t, qt.Equals(trace.Before("", " · "), "trace"))
}

// TestSchemaHasAllClasses: the documented values are those that documents may have.
func TestSchemaHasAllClasses(t *testing.T) {
	text, err := os.ReadFile("../../docs/schema.json")
	qt.Assert(t, qt.IsNil(err))
	var schema struct {
		Defs map[string]struct {
			Enum []string `json:"enum"`
		} `json:"$defs"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(text, &schema)))
	known := []string{plain.Name, trace.Name}
	for _, c := range classes {
		known = append(known, c.Name)
	}
	qt.Check(t, qt.ContentEquals(schema.Defs["class"].Enum, known))
}

func TestResultOfOperation(t *testing.T) {
	qt.Check(t, qt.IsTrue(ResultOfOperation(native("ttnn::create_device_tensor", "ttnn::device_operation::detail::launch", "ttnn::prim::unary"))))
	qt.Check(t, qt.IsFalse(ResultOfOperation(native("ttnn::create_device_tensor", "ttnn::empty"))))
}
