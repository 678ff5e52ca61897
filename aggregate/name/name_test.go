package name

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

const packages = "/venv/lib/python3.10/site-packages/"

func py(name, file string, line int) event.Frame {
	return event.Frame{Kind: event.Python, Name: name, File: file, Line: line}
}

func native(names ...string) (list []event.Frame) {
	for _, name := range names {
		list = append(list, event.Frame{Kind: event.Native, Name: name, Module: "_ttnncpp.so"})
	}
	return list
}

func frames(parts ...any) (list []event.Frame) {
	for _, part := range parts {
		switch p := part.(type) {
		case event.Frame:
			list = append(list, p)
		case []event.Frame:
			list = append(list, p...)
		}
	}
	return list
}

// TestNames uses shortened stacks of ttnn 0.68 to 0.81.
func TestNames(t *testing.T) {
	call := py("FastOperation.__call__", packages+"ttnn/decorators.py", 650)
	main := py("<module>", "/srv/model.py", 90)
	add := native("tt::tt_metal::BufferImpl::create", "ttnn::create_device_tensor", "ttnn::prim::binary_ng", "ttnn::add",
		"nanobind::detail::func_create<ttnn.add>::{lambda#1}", "nanobind::detail::nb_func_vectorcall_complex")
	own := event.Frame{Kind: event.Native, Name: "Trainer::step", Module: "trainer"}
	launch := func(symbol string) event.Frame {
		return event.Frame{Kind: event.Native, Name: "ttnn::device_operation::detail::launch", Symbol: symbol, Module: "wavelet.so"}
	}
	const lift = "_ZN4ttnn16device_operation6detail6launchITkNS0_22DeviceOperationConceptEN4ttwv4prim19LiftDeviceOperationEEENT_21tensor_return_value_tERKNS5_22operation_attributes_tERKNS5_13tensor_args_tE"
	for name, test := range map[string]struct {
		stack []event.Frame
		want  string
	}{
		"an operation bound to C++": {
			frames(add, call, py("Attention.forward", "/srv/models/attention.py", 12), main), "attention.py:12 Attention.forward · ttnn.add"},
		"an operation of an extension": {
			frames(native("tt::tt_metal::BufferImpl::create", "ttnn::create_device_tensor", "ttwv::prim::LiftDeviceOperation::create_output_tensors"),
				launch(lift), event.Frame{Kind: event.Native, Name: "ttwv::lift", Module: "wavelet.so"}, main), "model.py:90 · ttwv::prim::LiftDeviceOperation"},
		"an operation of an extension, of which only the caller is known": {
			frames(native("ttnn::create_device_tensor"), launch(""), event.Frame{Kind: event.Native, Name: "ttwv::lift", Module: "wavelet.so"}, main),
			"model.py:90 · ttwv::lift"},
		"an operation of an extension without symbols": {
			frames(native("ttnn::create_device_tensor"), launch(""), event.Frame{Kind: event.Native, Module: "wavelet.so"}, main),
			"model.py:90 · ttnn::device_operation::detail::launch"},
		"an operation of ttnn that an extension calls": {
			frames(add[:4], event.Frame{Kind: event.Native, Name: "ttwv::lift", Module: "wavelet.so"}, main), "model.py:90 · ttnn::add"},
		"an operator": {
			frames(add, call, py("<lambda>", packages+"ttnn/__init__.py", 459), py("forward", "/srv/model.py", 12), main), "model.py:12 forward · ttnn.add"},
		"an operation of a submodule": {
			frames(native("ttnn::prim::matmul", "nanobind::detail::func_create<ttnn.experimental.matmul>::{lambda#1}"), call, main),
			"model.py:90 · ttnn.experimental.matmul"},
		"an operation in Python": {
			frames(native("ttnn::Tensor::to_device", "nanobind::detail::func_create::{lambda#1}"),
				py("load_tensor", packages+"ttnn/operations/core.py", 593), call, main), "model.py:90 · ttnn.load_tensor"},
		"an operation in Python that calls another": {
			frames(add, call, py("from_torch", packages+"ttnn/operations/core.py", 200), call,
				py("as_tensor", packages+"ttnn/operations/core.py", 700), call, main), "model.py:90 · ttnn.as_tensor"},
		"the slow operation of older releases": {
			frames(add, py("Operation.__call__.<locals>.call_wrapper", packages+"ttnn/decorators.py", 500), call, main), "model.py:90 · ttnn.add"},
		"a package between the user and ttnn": {
			frames(add, call, py("Linear.forward", packages+"tt_lib/linear.py", 5), py("run", "/srv/model.py", 7), main), "model.py:7 run · ttnn.add"},
		"Python's own between the user and ttnn": {
			frames(add, call, py("reduce", "/usr/lib/python3.12/functools.py", 5), py("<module>", "<frozen importlib._bootstrap>", 1),
				py("run", "/srv/model.py", 7), main), "model.py:7 run · ttnn.add"},
		"a checkout of tt-metal": {
			frames(add, py("__call__", "/src/tt-metal/ttnn/ttnn/decorators.py", 650), py("MLP.forward", "/src/tt-metal/models/mlp.py", 3)),
			"mlp.py:3 MLP.forward · ttnn.add"},
		"nothing but packages": {
			frames(add, call, py("main", packages+"pytest/main.py", 3)), "decorators.py:650 FastOperation.__call__ · ttnn.add"},
		"a stack that lacks its native part": {
			frames(call, py("forward", "/srv/model.py", 12), main), "model.py:12 forward"},
		"a binding without a name": {
			frames(native("ttnn::Tensor::to_device", "nanobind::detail::func_create::{lambda#1}"), main), "model.py:90 · ttnn::Tensor::to_device"},
		"C++ that Python was called by": {
			frames(add, main, native("ttnn::not_this<ttnn.one>")), "model.py:90 · ttnn.add"},
		"C++ that calls ttnn": {
			frames(native("tt::tt_metal::BufferImpl::create", "ttnn::prim::matmul", "ttnn::matmul"), own, native("_start")), "Trainer::step · ttnn::matmul"},
		"C++ with lines": {
			frames(native("ttnn::matmul"), event.Frame{Kind: event.Native, Name: "main", File: "/src/main.cpp", Line: 8, Module: "a.out"}),
			"main.cpp:8 main · ttnn::matmul"},
		"C++ on tt-metal alone": {
			frames(native("tt::tt_metal::BufferImpl::create", "tt::tt_metal::CreateBuffer"), own), "Trainer::step · tt::tt_metal::CreateBuffer"},
		"no frame of a library": {frames(own), "Trainer::step"},
		"names are not known":   {[]event.Frame{{Kind: event.Native, Module: "libtt_metal.so", Address: 0x1234}}, ""},
		"no stack":              {nil, ""},
	} {
		t.Run(name, func(t *testing.T) { qt.Check(t, qt.Equals(Of(test.stack).String(), test.want)) })
	}
}

func TestUserCallsAreInnermostFirst(t *testing.T) {
	stack := frames(native("ttnn::add"), py("__call__", packages+"ttnn/decorators.py", 1), py("inner", "/srv/a.py", 2), py("outer", "/srv/b.py", 3))
	qt.Check(t, qt.DeepEquals(UserCalls(stack), []Call{{"inner", "/srv/a.py", 2}, {"outer", "/srv/b.py", 3}}))
}

// TestStacksAreFolded to the operation and the user's own calls.
func TestStacksAreFolded(t *testing.T) {
	add := native("tt::tt_metal::BufferImpl::create", "ttnn::add", "nanobind::detail::func_create<ttnn.add>")
	call, loop := py("__call__", packages+"ttnn/decorators.py", 1), py("run_until_complete", "/usr/lib/python3.10/asyncio/base_events.py", 641)
	test, inner, outer := py("runtest", packages+"_pytest/runner.py", 9), py("inner", "/srv/a.py", 2), py("outer", "/srv/b.py", 3)
	start := py("_call_with_frames_removed", "<frozen importlib._bootstrap>", 241)
	owner, own := event.Frame{Name: "model.weights[*]"}, event.Frame{Kind: event.Native, Name: "Trainer::step", Module: "trainer"}
	op := event.Frame{Kind: event.Native, Name: "ttnn.add"}
	for name, stacks := range map[string][2][]event.Frame{
		"Python":         {frames(add, call, inner, loop, outer, test, start), {op, inner, outer}},
		"an owner":       {frames(add, call, inner, owner), {op, inner, owner}},
		"packages alone": {frames(add, call, loop), {op, call, loop}},
		"no operation":   {frames(inner, loop), {inner}},
		"C++":            {frames(native("ttnn::add", "ttnn::operations::run"), own, native("_start")), {{Kind: event.Native, Name: "ttnn::operations::run"}, own}},
		"a library only": {native("malloc"), native("malloc")},
		"nothing":        {nil, nil},
	} {
		t.Run(name, func(t *testing.T) { qt.Check(t, qt.DeepEquals(Fold(stacks[0]), stacks[1])) })
	}
}
