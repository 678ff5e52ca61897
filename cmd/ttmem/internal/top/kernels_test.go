package top

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
)

// The kernels of command queues and of the fabric are not among those of the workers, and a figure that
// is not known is not 0.
func TestKernelsOfTheRuntimeAreFiguresOfTheirOwn(t *testing.T) {
	group := func(kernels ...memory.KernelsUse) *chipBlock {
		b := new(chipBlock)
		for _, k := range kernels {
			b.chipGroup = append(b.chipGroup, chip{Device: &memory.Device{Regions: memory.Regions{Kernel: k}}})
		}
		return b
	}
	queue := memory.RuntimeKernels{Programs: 1, MaxBytesPerCore: 31616}
	worker := memory.KernelsUse{Programs: 1, MaxBytesPerCore: 1424, CommandQueue: queue}
	routers := worker
	routers.Fabric = memory.RuntimeKernels{Programs: 1}
	silent := memory.KernelsUse{NotReported: true, CommandQueue: queue}
	qt.Check(t, qt.DeepEquals(group(memory.KernelsUse{}).kernels(), []string{"kernels 0 B"}))
	qt.Check(t, qt.DeepEquals(group(silent, worker).kernels(), []string{"kernels 1.4 KiB", "command queue 30.9 KiB"}))
	qt.Check(t, qt.DeepEquals(group(worker, routers).kernels(), []string{"kernels 1.4 KiB", "command queue 30.9 KiB", "fabric not known"}))
	qt.Check(t, qt.DeepEquals(group(memory.KernelsUse{Programs: 1}).kernels(), []string{"kernels not known"}))
	qt.Check(t, qt.DeepEquals(group(silent, silent).kernels(), []string{"no kernels reported yet", "command queue 30.9 KiB"}))
}
