// Package metrics exports the totals of a Snapshot to Prometheus. It keeps nothing between two
// scrapes: each metric is a value of the Snapshot, so that Prometheus shows the figures of all
// other views. A scrape costs some 20 series for each chip and, with Options.Processes, a bounded
// number of them for processes, containers and pods.
// It is not part of ttmem's Go library: it changes without notice.
package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Options add what the Snapshot does not have. The zero value exports totals.
type Options struct {
	// Version is ttmem's.
	Version string
	// Reading is true while existing memory is still being read: totals are too low until then.
	Reading bool
	// Processes is how many processes, containers and pods have series of their own: those with
	// the most memory. The others are one series, "other". 0: there are no such series.
	Processes int
	// Chip returns what the host knows about a chip; nil: nothing.
	Chip func(id int) Chip
}

// A Chip is what a host knows about a chip. Fields are empty if it does not know them.
type Chip struct{ Board, PCI, UniqueID string }

// desc describes a metric.
func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("ttmem_"+name, help, labels, nil)
}

// Metrics of ttmem itself.
var (
	buildInfo = desc("build_info", "The version of ttmem; the value is 1.", "version")
	reading   = desc("reading", "1 while ttmem still reads the memory that processes had allocated before it attached: totals are too low until then.")
	processes = desc("processes", "Traced processes that run.")
	exited    = desc("processes_exited_total", "Traced processes that have ended.")
	lost      = desc("lost_events_total", "Events that were lost: figures may be wrong.")
	overlaps  = desc("overlapping_buffers_total", "Buffers that were assigned addresses which a buffer of another allocator had on the same chip.")
	unsafe    = desc("trace_unsafe_buffers_total", "Buffers that were allocated after a trace was captured, and were live when it was replayed, which may overwrite them.")
	failures  = desc("allocation_failures_total", "Allocations that failed. One on several chips counts once.")
)

// Metrics of each chip.
var (
	chipInfo = desc("chip_info", "What is known about a chip, to join on; the value is 1. Labels that the host does not know are empty.",
		"chip", "arch", "board", "pci_bdf", "unique_id")
	chipProcesses = desc("device_processes", "Processes that use the chip.", "chip")
	uncertain     = desc("device_uncertain_processes", "Processes that use the chip, and whose figures may be wrong because events were lost.", "chip")
	coreUsed      = desc("device_l1_core_used_bytes", "Use of the L1 of the fullest core, by buffers or by the circular and dataflow buffers of the program that runs now.", "chip", "kind")
	coreCapacity  = desc("device_l1_core_capacity_bytes", "L1 of a core that can be allocated.", "chip")
	coreProgram   = desc("device_l1_core_largest_program_bytes", "What the largest live program needs of the L1 of its fullest core when it runs.", "chip")
	corePeak      = desc("device_l1_core_peak_bytes", "Highest use of the L1 of a core since tracing began.", "chip")
)

// Metrics of each region of each chip.
var (
	used         = ofRegion("used_bytes", "Reserved memory: that of a bank, times the number of banks. Region CB: what the largest live program needs on all its cores.")
	capacity     = ofRegion("capacity_bytes", "Memory that can be allocated, in all banks.")
	peak         = ofRegion("peak_bytes", "Highest reserved memory since tracing began: that of a bank, times the number of banks. ttmem_device_l1_core_peak_bytes has that of L1.")
	bankCapacity = ofRegion("bank_capacity_bytes", "Memory that can be allocated in each bank.")
	bankFree     = ofRegion("bank_free_bytes", "Free memory in each bank, in all holes together.")
	largestFree  = ofRegion("largest_free_block_bytes", "The largest hole in each bank. A buffer that needs more in each bank does not fit.")
	failed       = desc("device_allocation_failures_total", "Allocations that failed on the chip. One on several chips counts on each.", "chip", "region")
)

func ofRegion(name, help string) *prometheus.Desc {
	return desc("device_memory_"+name, help, "chip", "region")
}

// New returns a collector of the metrics of a snapshot.
func New(s *memory.Snapshot, o Options) prometheus.Collector { return &collector{s, o} }

type collector struct {
	*memory.Snapshot
	o Options
}

// Describe describes nothing: the metrics depend on the snapshot.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect sends the metrics.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	out := output(to)
	out.gauge(buildInfo, 1, c.o.Version)
	isReading := uint64(0)
	if c.o.Reading {
		isReading = 1
	}
	out.gauge(reading, isReading)
	running := c.running()
	out.gauge(processes, uint64(len(running)))
	out.counter(exited, c.ExitedProcesses)
	out.counter(lost, c.LostEvents)
	out.counter(failures, c.FailureCount)
	out.counter(overlaps, c.OverlapCount)
	out.counter(unsafe, c.UnsafeCount)
	for i := range c.Devices {
		c.chip(out, &c.Devices[i], running)
	}
	if c.o.Processes > 0 {
		c.owners(out, running)
	}
}

// running returns the processes that run, by id.
func (c *collector) running() map[int]*memory.Process {
	list := make(map[int]*memory.Process)
	for i := range c.Processes {
		if p := &c.Processes[i]; p.Exit == nil {
			list[p.PID] = p
		}
	}
	return list
}

func (c *collector) chip(out output, d *memory.Device, running map[int]*memory.Process) {
	id := strconv.Itoa(d.ID)
	var of Chip
	if c.o.Chip != nil {
		of = c.o.Chip(d.ID)
	}
	if of.Board == "" {
		of.Board = d.Board
	}
	out.gauge(chipInfo, 1, id, d.Arch, of.Board, of.PCI, of.UniqueID)
	out.gauge(chipProcesses, uint64(len(d.Processes)), id)
	doubtful := uint64(0)
	for i := range d.Processes {
		if p := running[d.Processes[i].PID]; p != nil && len(p.Lost) > 0 {
			doubtful++
		}
	}
	out.gauge(uncertain, doubtful, id)
	for region := range event.Region(event.BankedRegions) {
		c.region(out, id, region, d.Regions.Banked(region))
	}
	out.gauge(used, d.Regions.CB.Bytes, id, event.CB.String())
	for region := range event.NumRegions {
		if n := d.Failures[region]; n > 0 || d.Regions.Banked(region) != nil && d.Regions.Banked(region).CapacityBytes > 0 || region == event.CB {
			out.counter(failed, n, id, region.String())
		}
	}
	if l1 := &d.L1PerCore; l1.CapacityBytes > 0 {
		out.gauge(coreUsed, l1.BufferBytes, id, "buffers")
		out.gauge(coreUsed, l1.CBBytes, id, "circular_buffers")
		out.gauge(coreCapacity, l1.CapacityBytes, id)
		out.gauge(coreProgram, l1.LargestProgramBytes, id)
		out.gauge(corePeak, l1.Peak.Bytes(), id)
	}
}

// region sends the metrics of a region that was ever used or can be.
func (c *collector) region(out output, id string, region event.Region, r *memory.Region) {
	if r.CapacityBytes == 0 && r.AllocatedBytes == 0 && r.PeakBytes == 0 {
		return
	}
	name := region.String()
	out.gauge(used, r.AllocatedBytes, id, name)
	if region != event.L1 {
		out.gauge(peak, r.PeakBytes, id, name)
	}
	if r.CapacityBytes > 0 {
		out.gauge(capacity, r.CapacityBytes, id, name)
		out.gauge(bankCapacity, r.CapacityBytesPerBank, id, name)
	}
	if r.FreeSpace != nil {
		out.gauge(bankFree, r.FreeBytesPerBank, id, name)
		out.gauge(largestFree, r.LargestFreeBytesPerBank, id, name)
	}
}

type output chan<- prometheus.Metric

func (out output) gauge(d *prometheus.Desc, value uint64, labels ...string) {
	out.send(d, prometheus.GaugeValue, value, labels)
}

func (out output) counter(d *prometheus.Desc, value uint64, labels ...string) {
	out.send(d, prometheus.CounterValue, value, labels)
}

// send sends a metric. Values of labels come from traced programs.
func (out output) send(d *prometheus.Desc, kind prometheus.ValueType, value uint64, labels []string) {
	for i := range labels {
		labels[i] = event.Printable(labels[i])
	}
	out <- prometheus.MustNewConstMetric(d, kind, float64(value), labels...)
}
