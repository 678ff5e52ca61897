package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer"
)

func TestDoctorWithoutRootDoesNotSayThatTheKernelLacksWhatItCouldNotTry(t *testing.T) {
	features := func() []tracer.Feature {
		return []tracer.Feature{
			{Name: "kernel", OK: true, Detail: "Linux 6.8"},
			{Name: "privileges", Detail: "not root: run it with sudo"},
			{Name: "ring buffer", Detail: "detect support for RingBuf: operation not permitted; Linux 5.8 or later is needed"},
			{Name: "mapping events", Detail: "perf_event_open: permission denied; a kernel with CONFIG_PERF_EVENTS is needed"},
			{Name: "uprobe_multi", Detail: "invalid argument; Linux 6.6 or later is needed"},
		}
	}
	d := diagnosis{Features: features()}
	d.untried = explainRefused(d.Features, false)
	var out strings.Builder
	d.write(&out, true, false)
	qt.Check(t, qt.Equals(out.String(), `Run without root: the libraries of processes are not looked at, and of the kernel
could not be tried: ring buffer, mapping events.
`+"`sudo ttmem doctor`"+` tells what there is.

Host
  ok       kernel                  Linux 6.8
  MISSING  privileges              not root: run it with sudo
  ?        ring buffer             not tried: needs root
  ?        mapping events          not tried: needs root
  MISSING  uprobe_multi            invalid argument; Linux 6.6 or later is needed

--library FILE looks at a library without root: …/site-packages/ttnn/build/lib/libtt_metal.so
`))

	out.Reset()
	d.write(&out, true, true)
	qt.Check(t, qt.StringContains(out.String(), "--library FILE looks at a file: …/site-packages/ttnn/build/lib/libtt_metal.so\n"))

	asRoot := features()
	qt.Check(t, qt.DeepEquals(explainRefused(asRoot, true), []string{"ring buffer", "mapping events"}))
	qt.Check(t, qt.StringContains(asRoot[2].Detail, "CAP_BPF"))
	qt.Check(t, qt.IsFalse(asRoot[2].OK)) // nothing can be traced without it
}
