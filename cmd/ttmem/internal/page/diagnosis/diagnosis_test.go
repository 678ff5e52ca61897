package diagnosis

import (
	"bufio"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/doctor"
	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

func TestDoctorWithoutRootDoesNotSayThatTheKernelLacksWhatItCouldNotTry(t *testing.T) {
	features := func() []kernel.Feature {
		return []kernel.Feature{
			{Name: "kernel", OK: true, Detail: "Linux 6.8"},
			{Name: "privileges", Detail: "not root: run it with sudo"},
			{Name: "BPF programs", Untried: true, Detail: "operation not permitted"},
			{Name: "mapping events", Untried: true, Detail: "perf_event_open: permission denied; a kernel with CONFIG_PERF_EVENTS is needed"},
			{Name: "BTF", Detail: "a kernel with CONFIG_DEBUG_INFO_BTF is needed"},
		}
	}
	p := New(features(), true, false)
	var out strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.Equals(out.String(), `Without root, the libraries of processes are not checked.
These kernel features need root: BPF programs, mapping events.
`+"`sudo ttmem doctor`"+` checks everything.

Host
  ok       kernel                  Linux 6.8
  MISSING  privileges              not root: run it with sudo
  ?        BPF programs            not tried: needs root
  ?        mapping events          not tried: needs root
  MISSING  BTF                     a kernel with CONFIG_DEBUG_INFO_BTF is needed

Tracing does not work here: privileges, BTF.

No card: Tenstorrent's kernel driver is not loaded.

`+"`ttmem doctor LIBRARY`"+` checks a library without root:
  …/site-packages/ttnn/build/lib/libtt_metal.so
`))

	out.Reset()
	p.Root = true
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.StringContains(out.String(), "`ttmem doctor LIBRARY` checks a file:\n  …/site-packages/ttnn/build/lib/libtt_metal.so\n"))

	asRoot := features()
	qt.Check(t, qt.DeepEquals(explainUntried(asRoot, true), []string{"BPF programs", "mapping events"}))
	qt.Check(t, qt.StringContains(asRoot[2].Detail, "CAP_BPF"))
	qt.Check(t, qt.IsFalse(asRoot[2].OK)) // nothing can be traced without it
}

// Fields that nothing confirms are named; many are counted.
func TestDoctorNamesFieldsOfOneSource(t *testing.T) {
	p := Page{Libraries: []*doctor.Inspection{{
		Path: "lib.so", BuildID: "07", Fields: map[string]string{"size_": "0x8", "unique_id_": "0x10"}, Single: []string{"unique_id_"},
	}}}
	var out strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.Equals(out.String(), `lib.so
  release   not known
  build-id  07
  fields    2 found in the machine code
            confirmed by one function only: unique_id_
  probes    0 found
  missing   nothing
`))
	p.Libraries[0].Single = []string{"a", "b", "c", "d"}
	out.Reset()
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.StringContains(out.String(), "\n            4 of them confirmed by one function only (single_source in --json)\n"))
}

func TestDoctorSaysWhetherTracingWorks(t *testing.T) {
	features := []kernel.Feature{
		{Name: "call stacks", OK: true, Detail: "2 of 2 right"},
		{Name: "uprobe_multi", OK: true, Detail: "not supported", Instead: "a perf event for each probe"},
	}
	text := func() string {
		var out strings.Builder
		w := bufio.NewWriter(&out)
		New(features, true, true).writeHost(w, page.Layout{})
		qt.Assert(t, qt.IsNil(w.Flush()))
		return out.String()
	}
	qt.Check(t, qt.Equals(text(), `Host
  ok       call stacks             2 of 2 right
  slower   uprobe_multi            not supported
                                   instead: a perf event for each probe

Tracing works here.

`))
	features[0] = kernel.Feature{Name: "call stacks", Detail: "0 of 2 right"}
	qt.Check(t, qt.StringContains(text(), "\n  MISSING  call stacks             0 of 2 right\n"))
	qt.Check(t, qt.StringContains(text(), "\nTracing does not work here: call stacks.\n"))
	features[0].Busy = true
	qt.Check(t, qt.StringContains(text(), "\n  BUSY     call stacks             0 of 2 right\n"))
	qt.Check(t, qt.StringContains(text(), "\nThis host is too busy to check whether tracing works: no result in time for call stacks. Run `ttmem doctor` again.\n"))
	features[0].Busy, features[0].Untried = false, true
	qt.Check(t, qt.StringContains(text(), "\nttmem could not check whether tracing works here.\n"))
}

func TestDoctorTellsACardFromAMockAndASimulator(t *testing.T) {
	p := New([]kernel.Feature{{Name: "kernel", OK: true}}, true, true)
	p.Driver = "2.10.0"
	p.Chips = []host.Chip{{ID: 0, Board: "n300", PCI: "0000:01:00.0", Firmware: "19.4.0.0"}, {ID: 2}}
	owner := 1000
	p.Uninspected = map[int]int{1001: 40}
	p.Libraries = []*doctor.Inspection{{
		Path: "lib.so", Owner: &owner, Processes: []int{7, 8, 9, 10}, RunsOn: []host.Runs{host.OnCard, host.OnMock, host.OnSimulator, host.OnNothingKnown},
	}}
	var out strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.StringContains(out.String(), `
Chips on PCIe, with driver 2.10.0
  0        n300                    0000:01:00.0, firmware 19.4.0.0
  2        board not known         address not known, firmware not known

lib.so
`))
	qt.Check(t, qt.StringContains(out.String(), "\n  owner     user 1000\n"))
	qt.Check(t, qt.StringContains(out.String(), "\nProcesses of user 1001 map 40 more libraries, too many to be checked.\n"))
	qt.Check(t, qt.StringContains(out.String(), "\n  mapped by 7 (card), 8 (mock device), 9 (simulator), 10\n"))
}

// A process is shown with what can be traced of it; the page says that it works only if its library is traced, and for this user.
func TestDoctorOfAProcess(t *testing.T) {
	p := New(nil, false, false)
	one := &doctor.Process{
		PID: 42, Name: "python3\x1b[31m", UID: 1000, RunsOn: host.OnCard, Files: 90, TTMetal: []string{"/opt/pjrt_plugin.so"}, Python: "3.10",
		Interpreter: "/usr/bin/python3.10", NoOwners: "no file that it maps exports ttnn's functions that read tensors",
		Lines: []string{"/a/one.so", "/a/two.so", "/a/three.so", "/a/four.so"}, NoUnwind: []string{"/a/odd.so"}, Unreadable: []string{"/memfd:x"},
	}
	p.Processes = append(p.Processes, one)
	qt.Check(t, qt.IsTrue(p.Works()))
	p.Libraries = append(p.Libraries, &doctor.Inspection{Path: "/opt/pjrt_plugin.so", Deleted: true, BuildID: "ab", Untraced: "it is stripped"})
	qt.Check(t, qt.IsFalse(p.Works()))
	var out strings.Builder
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.Equals(out.String(), `Process 42 (python3[31m)
  user      1000
  tracing   the host's service or sudo traces it for you
  runs on   card
  tt-metal  /opt/pjrt_plugin.so
  Python    CPython 3.10, in /usr/bin/python3.10
  frames    those of Python and C++
  owners    none: no file that it maps exports ttnn's functions that read tensors
  C++ lines debug information in one.so, two.so, three.so and 1 more
  stacks    end in odd.so, without unwind information
  unread    memfd:x

/opt/pjrt_plugin.so (deleted)
  release   not known
  build-id  ab
  UNTRACED  it is stripped
`))
	p.Libraries = nil
	one.Refused = "only root and user 1000 may trace it"
	qt.Check(t, qt.IsFalse(p.Works()))
	one.Refused, one.TTMetal = "", nil
	qt.Check(t, qt.IsFalse(p.Works()))
	*one = doctor.Process{PID: 7, NoFrames: "it runs no Python", NoOwners: "it runs no Python"}
	out.Reset()
	qt.Assert(t, qt.IsNil(p.WriteText(&out, page.Layout{})))
	qt.Check(t, qt.StringContains(out.String(), "  frames    those of C++ only: it runs no Python\n  owners    none: it runs no Python\n"))
}
