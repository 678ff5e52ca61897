package books

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/tracer/event"
)

// TestOnlyExceptionsThatLeaveAreFailures: not those that the library caught last.
func TestOnlyExceptionsThatLeaveAreFailures(t *testing.T) {
	const full, other = "Out of Memory: no room", "Invalid arguments to reshape"
	made := func(tid uint32, ms, exception uint64, message string) []byte {
		r := bpf.KernelFailedRecord{Exception: exception}
		r.H = bpf.KernelHeader{TimeNs: ms * 1e6, Tgid: 7, Tid: tid, Kind: bpf.RecordFailed}
		copy(r.Message[:], message)
		return raw(&r)
	}
	caught := func(tid uint32, ms, exception uint64, flags uint8) []byte {
		return raw(&bpf.KernelCaughtRecord{
			H: bpf.KernelHeader{TimeNs: ms * 1e6, Tgid: 7, Tid: tid, Kind: bpf.RecordCaught, Flags: flags}, Exception: exception,
		})
	}
	var end []byte // of the process
	const again = bpf.CaughtThrownAgain
	for name, c := range map[string]struct {
		records [][]byte
		want    []string
	}{
		"not caught":                     {[][]byte{made(7, 1, 16, full)}, []string{full}},
		"not caught, then the end":       {[][]byte{made(7, 1, 16, full), end}, []string{full}},
		"caught inside":                  {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0)}, nil},
		"caught inside, then the end":    {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), end}, nil},
		"caught inside and thrown again": {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), caught(7, 3, 16, again)}, []string{full}},
		"thrown again, and caught again": {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), caught(7, 3, 16, again), caught(7, 4, 16, 0)}, nil},
		"thrown again with more text":    {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), made(7, 3, 32, "matmul: "+full)}, []string{full}},
		"a text again, later":            {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), made(7, 200, 32, "matmul: "+full)}, []string{"matmul: " + full}},
		"the same text again":            {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), made(7, 3, 32, full)}, []string{full}},
		"its address again":              {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), made(8, 3, 16, other), caught(8, 4, 16, again)}, []string{other}},
		"caught inside, then another":    {[][]byte{made(7, 1, 16, full), caught(7, 2, 16, 0), made(7, 3, 32, other)}, []string{other}},
		"passed to another thread":       {[][]byte{made(8, 1, 16, full), caught(8, 2, 16, 0), caught(7, 3, 16, again)}, []string{full}},
		"one after the other":            {[][]byte{made(7, 1, 16, full), made(7, 3, 32, other)}, []string{full, other}},
		"another one caught":             {[][]byte{made(7, 1, 16, full), caught(7, 2, 32, 0)}, []string{full}},
	} {
		d := newTestProcess()
		for _, r := range c.records {
			if r == nil {
				d.End()
				continue
			}
			d.decode(r)
		}
		d.ThrownSince(2e9)
		var got []string
		for _, e := range d.events {
			if e.Kind == event.AllocFailed || e.Kind == event.OperationFailed {
				qt.Check(t, qt.Equals(e.Kind == event.AllocFailed, e.Message != other), qt.Commentf("%s", name))
				got = append(got, e.Message)
			}
		}
		qt.Check(t, qt.DeepEquals(got, c.want), qt.Commentf("%s", name))
	}
}

// TestLaterEventsWaitForAnException, so that they stay in order of time.
func TestLaterEventsWaitForAnException(t *testing.T) {
	d := newTestProcess()
	r := bpf.KernelFailedRecord{Exception: 16}
	r.H = bpf.KernelHeader{TimeNs: 1e9, Tgid: 7, Tid: 7, Kind: bpf.RecordFailed}
	d.decode(raw(&r))
	qt.Check(t, qt.Equals(d.ThrownSince(1e9+caughtNs), 1e9))
	qt.Check(t, qt.HasLen(d.events, 0))
	qt.Check(t, qt.Equals(d.ThrownSince(1e9+caughtNs+1), ^uint64(0)))
	qt.Assert(t, qt.HasLen(d.events, 1))
	qt.Check(t, qt.Equals(d.events[0].Kind, event.OperationFailed))
	qt.Check(t, qt.IsFalse(d.Throwing()))
}

// TestNothingWaitsForAnExceptionThatIsThrownAgainAndAgain: its process would hold up all others.
func TestNothingWaitsForAnExceptionThatIsThrownAgainAndAgain(t *testing.T) {
	d := newTestProcess()
	r := bpf.KernelFailedRecord{Exception: 16}
	r.H = bpf.KernelHeader{TimeNs: 1e9, Tgid: 7, Tid: 7, Kind: bpf.RecordFailed}
	d.decode(raw(&r))
	for n := uint64(1); n <= 4; n++ {
		at := uint64(1e9 + n*caughtNs/2)
		d.decode(raw(&bpf.KernelCaughtRecord{
			H:         bpf.KernelHeader{TimeNs: at, Tgid: 7, Tid: 7, Kind: bpf.RecordCaught, Flags: bpf.CaughtThrownAgain},
			Exception: 16,
		}))
		want := uint64(1e9)
		if at > 1e9+caughtNs {
			want = ^uint64(0)
		}
		qt.Check(t, qt.Equals(d.ThrownSince(at), want))
		qt.Check(t, qt.HasLen(d.thrown, 1))
	}
}

// TestWaitingExceptionsAreBounded.
func TestWaitingExceptionsAreBounded(t *testing.T) {
	d := newTestProcess()
	for i := range uint32(2 * maxThrown) {
		r := bpf.KernelFailedRecord{Exception: uint64(i)}
		r.H = bpf.KernelHeader{TimeNs: uint64(i), Tgid: 7, Tid: i, Kind: bpf.RecordFailed}
		d.decode(raw(&r))
	}
	qt.Check(t, qt.HasLen(d.thrown, maxThrown))
}
