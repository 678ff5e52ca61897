package analyze_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/tracer/event"
)

// TestWhatFreedATensor: calls that deallocate are known, and the end of a tensor is not among them.
func TestWhatFreedATensor(t *testing.T) {
	s := aggregate.New()
	now := uint64(0)
	apply := func(e event.Event) {
		now += 10
		e.TimeNs, e.PID, e.Devices, e.BytesPerBank, e.Banks, e.Allocator = now, 7, []int{0}, 64, 12, 1
		s.Apply(&e)
	}
	at := func(line int, native ...string) *event.Stack {
		var frames []event.Frame
		for _, name := range native {
			frames = append(frames, event.Frame{Kind: event.Native, Name: name, Module: "_ttnncpp.so"})
		}
		return event.StackOf(append(frames, event.Frame{Kind: event.Python, Name: fmt.Sprint("line ", line), File: "model.py", Line: line}))
	}
	free := func(id, address uint64, by *event.Stack, reason event.Reason) {
		apply(event.Event{Kind: event.Alloc, BufferID: id, Address: address, Stack: at(1, "ttnn::add")})
		apply(event.Event{Kind: event.Free, BufferID: id, Address: address, Stack: by, Reason: reason})
	}
	called := []string{"tt::tt_metal::Buffer::~Buffer", "tt::tt_metal::distributed::MeshBuffer::deallocate", "ttnn::DeviceStorage::deallocate", "nanobind::detail::func_create"}
	free(1, 0x1000, at(11, called...), event.ReasonExplicit)
	free(2, 0x2000, at(12, "tt::tt_metal::distributed::MeshBuffer::deallocate", "ttnn::Tensor::~Tensor"), event.ReasonExplicit)
	free(3, 0x3000, at(13, called...), event.ReasonExplicit)
	free(4, 0x3000, nil, event.ReasonExplicit) // without stacks of frees
	free(5, 0x5000, at(14, called...), event.ReasonDeviceClose)

	lines := func() (list []int) {
		apply(event.Event{Kind: event.OperationFailed, Message: "Input Tensor A is not allocated"})
		failed := s.Snapshot().OperationFailures
		for _, d := range analyze.FreedBy(&failed[len(failed)-1]) {
			frames := d.FreedBy.Frames()
			list = append(list, frames[len(frames)-1].Line)
		}
		return list
	}
	qt.Check(t, qt.DeepEquals(lines(), []int{13, 11}))

	// the program frees from more lines than are kept: the newest are known
	for i := range 1000 {
		free(uint64(100+i), 0x9000, at(1000+i, called...), event.ReasonExplicit)
	}
	many := lines()
	qt.Check(t, qt.HasLen(many, 16))
	qt.Check(t, qt.Equals(many[0], 1999))
}
