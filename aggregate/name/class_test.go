package name

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

// natives are a stack of native functions, innermost first.
func natives(names string) (frames []event.Frame) {
	for _, name := range strings.Fields(names) {
		frames = append(frames, event.Frame{Kind: event.Native, Name: name})
	}
	return frames
}

// TestRuntimeRetained uses shortened stacks of real programs on ttnn.
func TestX(t *testing.T) {
	for _, test := range []struct {
		name, stack, want string
	}{
		{"configuration of a pooling program", `tt::tt_metal::distributed::MeshBuffer::create tt::tt_metal::distributed::MeshCommandQueue::enqueue_write_tensor
			ttnn::operations::sliding_window::move_config_tensor_to_device ttnn::operations::pool::Pool2D::MultiCore::create_workload_descriptor
			ttnn::device_operation::MeshDeviceOperationAdapter::DescriptorMeshWorkloadAdapter::create_mesh_workload
			ttnn::device_operation::detail::create_and_cache_mesh_workload::{lambda#1} ttnn::device_operation::detail::launch ttnn::prim::pool2d`, "program cache"},
		{"a semaphore of a cached program", `tt::tt_metal::GlobalSemaphoreImpl::setup_buffer tt::tt_metal::GlobalSemaphore::GlobalSemaphore
			ttnn::operations::experimental::ccl::HighBwAllGatherUnicastFactory::create_mesh_workload`, "program cache"},
		{"binaries of kernels", `tt::tt_metal::distributed::MeshBuffer::create tt::tt_metal::distributed::MeshWorkloadImpl::load_binaries
			tt::tt_metal::distributed::FDMeshCommandQueue::enqueue_mesh_workload ttnn::device_operation::detail::launch`, "kernel binaries"},
		{"of the mesh", `tt::tt_metal::distributed::MeshBuffer::create tt::tt_metal::distributed::MeshDeviceImpl::init_realtime_profiler_socket
			tt::tt_metal::distributed::MeshDeviceImpl::initialize_impl`, "command queues"},
		{"the result of an operation", `tt::tt_metal::distributed::MeshBuffer::create ttnn::create_device_tensor
			ttnn::operations::binary_ng::BinaryNgDeviceOperation::create_output_tensors ttnn::device_operation::detail::launch ttnn::prim::binary_ng`, ""},
		{"a tensor that is written", `tt::tt_metal::distributed::MeshBuffer::create tt::tt_metal::distributed::MeshCommandQueue::enqueue_write_tensor
			tt::tt_metal::to_device ttnn::Tensor::to_device`, ""},
		{"a semaphore of the program's own", `tt::tt_metal::GlobalSemaphoreImpl::setup_buffer tt::tt_metal::GlobalSemaphore::GlobalSemaphore
			ttnn::global_semaphore::create_global_semaphore`, ""},
		{"no stack", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := ""
			if k := ClassOf(natives(test.stack), 0); k != nil {
				got = k.Name
				qt.Check(t, qt.Not(qt.Equals(k.Why, "")))
			}
			qt.Check(t, qt.Equals(got, test.want))
		})
	}
}

func TestPythonFunctionRetainsNothing(t *testing.T) {
	frames := []event.Frame{{Kind: event.Python, Name: "Factory::create_mesh_workload", File: "model.py", Line: 1}}
	qt.Check(t, qt.IsNil(ClassOf(frames, 0)))
}

func TestResultOfOperation(t *testing.T) {
	qt.Check(t, qt.IsTrue(ResultOfOperation(natives("ttnn::create_device_tensor ttnn::device_operation::detail::launch ttnn::prim::unary"))))
	qt.Check(t, qt.IsFalse(ResultOfOperation(natives("ttnn::create_device_tensor ttnn::empty"))))
}
