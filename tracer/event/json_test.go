package event

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/e2e/golden"
)

// samples has an event of every kind, with every field that it can have.
var samples = []Event{
	{
		TimeNs: 1 << 60, Kind: Alloc, PID: 10, TID: 11, Comm: "python3",
		Devices: []int{0, 1, 31}, Region: L1Small, BufferID: 42, Object: 0x7fff_0000_1000,
		Allocator: 0x5555_0000_0010, Address: 1 << 30, SizeBytes: 524288, PageSizeBytes: 2048,
		Layout: BlockSharded, BytesPerBank: 32768, Banks: 16, BeforeAttach: true,
		Stack: StackOf([]Frame{
			{Kind: Python, Name: "forward", File: "model.py", Line: 123},
			{Kind: Native, Name: "ttnn::add(int, std::string)", File: "add.cpp", Line: 7, Inlined: true, Module: "_ttnncpp.so"},
			{Kind: Native, Module: "libtt_metal.so", Address: 0xdeadbeef},
		}),
	},
	{
		TimeNs: 2, Kind: Free, PID: 10, TID: 11, Comm: "python3", Devices: []int{0},
		Region: DRAM, BufferID: 42, Object: 1, Allocator: 2, Address: 3, SizeBytes: 4,
		PageSizeBytes: 5, Layout: Interleaved, BytesPerBank: 6, Banks: 12, Reason: ReasonDeviceClose,
	},
	{
		TimeNs: 3, Kind: AllocFailed, PID: 10, TID: 11, Comm: "a\"b\\c\nd\te\x01\x7f\u2028é",
		Devices: []int{0}, Region: L1, SizeBytes: 1 << 40, PageSizeBytes: 2048, Layout: NDSharded,
		BytesPerBank: 524288, Banks: 64, Reason: ReasonOutOfMemory,
		Message: "Out of Memory: Not enough space\nbacktrace:",
	},
	{
		TimeNs: 4, Kind: AllocFailed, PID: 10, Devices: []int{0}, Region: CB, ProgramID: 2,
		SizeBytes: 267616, Cores: []CoreRange{{0, 0, 7, 3}}, Reason: ReasonStaticClash,
		Message: "Statically allocated dataflow buffers in program 2 clash",
	},
	{
		TimeNs: 5, Kind: CBAlloc, PID: 10, Devices: []int{0}, Region: CB, ProgramID: 7,
		Address: 107040, SizeBytes: 4096, Cores: []CoreRange{{0, 0, 7, 6}, {0, 7, 3, 7}},
		StaticKind: DataflowBuffer, Global: true,
	},
	{TimeNs: 5, Kind: ProgramRun, PID: 10, TID: 11, Devices: []int{0, 1}, ProgramID: 7},
	{TimeNs: 5, Kind: ProgramRun, PID: 10, Devices: []int{0}, ProgramID: 7, Uses: &Uses{Arguments: []uint32{0x20000, 0x100040}, Partial: true}},
	{TimeNs: 6, Kind: CBFree, PID: 10, Region: CB, ProgramID: 7},
	{TimeNs: 7, Kind: CBFree, PID: 10, Devices: []int{0}, Region: CB, ProgramID: 7, Reason: ReasonProcessExit},
	{TimeNs: 7, Kind: CBFree, PID: 10, Devices: []int{0}, Region: CB, ProgramID: 7, StaticKind: Scratchpad},
	{
		TimeNs: 8, Kind: KernelLoad, PID: 10, Devices: []int{0}, Region: Kernel, ProgramID: 7,
		SizeBytes: 9000, BytesPerBank: 3000, Cores: []CoreRange{{1, 2, 3, 4}},
	},
	{TimeNs: 9, Kind: KernelUnload, PID: 10, Region: Kernel, ProgramID: 7},
	{
		TimeNs: 10, Kind: DeviceOpen, PID: 10, Devices: []int{0, 1}, Allocator: 77,
		Open: &Open{Capacities: [BankedRegions]Capacity{DRAM: {12, 1072693184, 1048640}, L1: {64, 1393312, 0}},
			Board: "n300", Arch: "wormhole_b0"}, Mesh: true,
	},
	{TimeNs: 10, Kind: DeviceOpen, PID: 10, Devices: []int{0}, Allocator: 77, Cause: "sub-device manager"},
	{TimeNs: 10, Kind: TraceBegin, PID: 10, TID: 11, Devices: []int{0, 1}, ProgramID: 3},
	{TimeNs: 10, Kind: TraceEnd, PID: 10, TID: 11, Devices: []int{0, 1}, ProgramID: 3},
	{TimeNs: 10, Kind: TraceReplay, PID: 10, TID: 11, Devices: []int{0, 1}, ProgramID: 3},
	{TimeNs: 10, Kind: BufferWrite, PID: 10, TID: 11, Devices: []int{0}, Region: L1, BufferID: 7, Object: 8},
	{TimeNs: 10, Kind: BufferRead, PID: 10, TID: 11, Devices: []int{0}, BufferID: 7, Object: 8},
	{TimeNs: 10, Kind: TraceRelease, PID: 10, TID: 11, ProgramID: 0},
	{TimeNs: 11, Kind: HostMemory, PID: 10, TID: 10, SizeBytes: 1 << 30, BytesPerBank: 2 << 30},
	{TimeNs: 11, Kind: DeviceClose, PID: 10, Devices: []int{0, 1}, Allocator: 77},
	{TimeNs: 12, Kind: ProcessStart, PID: 10, Comm: "python3", Start: &Start{Command: "python3 -c 'x = 1'", Library: "/lib/libtt_metal.so", Release: "0.81.1"}},
	{
		TimeNs: 12, Kind: ProcessStart, PID: 10, UID: 1000, Start: &Start{Container: "0123456789abcdef", Pod: "3c9e6b0a-5b1c",
			ContainerPID: 7, AttachedLate: true},
	},
	{TimeNs: 13, Kind: ProcessExit, PID: 10, ExitStatus: 139},
	{TimeNs: 13, Kind: ProcessExit, PID: 10},
	{TimeNs: 13, Kind: ProcessExit, PID: 10, ExitStatus: UnknownStatus},
	{TimeNs: 14, Kind: Lost, Count: 12, Cause: "ring buffer full"},
	{TimeNs: 20, Kind: AllocFailed, PID: 10, Devices: []int{0}, Reason: ReasonOutOfMemory},
	{TimeNs: 21, Kind: Mark, UID: 1000, Cause: "after warm-up"},
	{
		TimeNs: 22, Kind: AllocFailed, PID: 10, Devices: []int{0}, Region: CB, ProgramID: 2, StaticKind: DataflowBuffer,
		Reason: ReasonStaticClash,
	},
	{TimeNs: 22, Kind: AllocFailed, PID: 10, Devices: []int{0}, Region: L1, Allocator: 77, Reason: ReasonOutOfMemory},
}

// record is the record of an event as text.
func record(e *Event) []byte {
	text, _ := MarshalJSON(e.Record()) // has no errors
	return text
}

func TestRecordsOfAllKinds(t *testing.T) {
	var text []byte
	seen := make(map[Kind]bool)
	for i := range samples {
		text = append(append(text, record(&samples[i])...), '\n')
		seen[samples[i].Kind] = true
	}
	// a Reread has no field of its own; an Owner, an OperationFailed and a Checkpoint are elsewhere
	qt.Check(t, qt.HasLen(seen, int(Checkpoint)-4))
	golden.Check(t, "records.golden", string(text))
}

func TestTheRecordIsTheDocumentedOne(t *testing.T) {
	e := Event{
		TimeNs: 5, Kind: Alloc, PID: 1, TID: 2, Comm: "c", Devices: []int{0, 1}, Region: DRAM,
		BufferID: 3, Object: 4, Address: 32, SizeBytes: 524288, PageSizeBytes: 2048,
		BytesPerBank: 45056, Banks: 12,
	}
	qt.Check(t, qt.Equals(string(record(&e)), `{"v":1,"time_ns":5,"kind":"alloc","pid":1,"tid":2,"comm":"c",`+
		`"devices":[0,1],"region":"DRAM","buffer_id":3,"object":4,"address":32,"size_bytes":524288,`+
		`"page_size_bytes":2048,"layout":"interleaved","bytes_per_bank":45056,"banks":12}`))

	e = Event{TimeNs: 6, Kind: CBAlloc, PID: 1, ProgramID: 2, Address: 3, SizeBytes: 4, Cores: []CoreRange{{0, 0, 7, 3}}, StaticKind: CircularBuffer}
	qt.Check(t, qt.Equals(string(record(&e)), `{"v":1,"time_ns":6,"kind":"cb_alloc","pid":1,"devices":[],"region":"CB",`+
		`"program_id":2,"address":3,"size_bytes":4,"cores":[[0,0,7,3]],"static_kind":"circular_buffer"}`))
}

func TestEveryRecordIsValidJSON(t *testing.T) {
	for i := range samples {
		e := samples[i]
		e.Comm = "broken \xff\xc3 utf-8 \xe2\x82"
		b := record(&e)
		qt.Check(t, qt.IsTrue(json.Valid(b)), qt.Commentf("%s", b))
		var parsed struct{ Comm string }
		qt.Check(t, qt.IsNil(json.Unmarshal(b, &parsed)))
		qt.Check(t, qt.Equals(parsed.Comm, "broken \ufffd\ufffd utf-8 \ufffd\ufffd"))
	}
}

// FuzzStrings checks that any string comes back, but for bytes that are not
// UTF-8.
func FuzzStrings(f *testing.F) {
	f.Add("plain", "two\nlines", "\x00\xff")
	f.Fuzz(func(t *testing.T, comm, message, name string) {
		e := Event{
			Kind: AllocFailed, Comm: comm, Message: message,
			Stack: StackOf([]Frame{{Kind: Native, Name: name}}),
		}
		text := record(&e)
		fuzztest.Printable(t, string(text))
		var got struct {
			Comm, Message string
			Stack         []Frame
		}
		qt.Assert(t, qt.IsNil(json.Unmarshal(text, &got)), qt.Commentf("%s", text))
		qt.Check(t, qt.Equals(got.Comm, valid(comm)))
		qt.Check(t, qt.Equals(got.Message, valid(message)))
		qt.Check(t, qt.Equals(got.Stack[0].Name, valid(name)))
	})
}

// valid replaces each byte that is not UTF-8.
func valid(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteRune(r)
	}
	return b.String()
}

// TestFramesHaveOneForm: alone, in a list, in a stack and in a record.
func TestFramesHaveOneForm(t *testing.T) {
	frames := []Frame{
		{Kind: "native", Name: "ttnn::add", Module: "_ttnncpp.so", Address: 4096},
		{Kind: "native", Module: "_ttnncpp.so", Address: 4096},
	}
	const want = `[{"kind":"native","name":"ttnn::add","module":"_ttnncpp.so"},{"kind":"native","module":"_ttnncpp.so","address":4096}]`
	for _, v := range []any{frames, StackOf(frames), [2]Frame(frames)} {
		text, err := MarshalJSON(v)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(text), want))
	}
	qt.Check(t, qt.StringContains(string(record(&Event{Kind: Alloc, Stack: StackOf(frames)})), `"stack":`+want))
}
