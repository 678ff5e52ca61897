package metrics

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// Metrics of owners of memory. The labels container_id and pod_uid are not called container and
// pod, as those that Prometheus adds to its targets: it would rename ours.
var (
	ofProcess   = ofOwner("process", "pid", "comm", "uid", "container_id", "pod_uid")
	ofContainer = ofOwner("container", "container_id", "pod_uid")
	ofPod       = ofOwner("pod", "pod_uid")
)

// An ownerKind has the metrics of a kind of owners: their buffers, and their memory on the host.
type ownerKind struct{ used, host *prometheus.Desc }

func ofOwner(kind string, labels ...string) ownerKind {
	const others = " Those without a series of their own are together \"other\"."
	return ownerKind{
		desc(kind+"_memory_used_bytes", "Buffers of the "+kind+", in all banks."+others, append([]string{"chip", "region"}, labels...)...),
		desc(kind+"_host_memory_bytes", "Resident memory on the host of the traced processes of the "+kind+"."+others, labels...),
	}
}

// other is the first label of the owners without a series of their own.
const other = "other"

// maxSeries is the maximum number of series of owners of a kind, without those of "other".
const maxSeries = 20_000

// owners sends the metrics of processes, containers and pods.
func (c *collector) owners(out output, running map[int]*memory.Process) {
	c.each(out, ofProcess, running, func(p *memory.Process) []string {
		return []string{strconv.Itoa(p.PID), p.Comm, strconv.Itoa(p.UID), p.Container, p.Pod}
	})
	c.each(out, ofContainer, running, func(p *memory.Process) []string { return []string{p.Container, p.Pod} })
	c.each(out, ofPod, running, func(p *memory.Process) []string { return []string{p.Pod} })
}

// A place is one region of one chip.
type place struct {
	chip   int
	region string
}

// An owner has the memory of the processes with the same labels.
type owner struct {
	labels []string
	total  uint64
	bytes  map[place]uint64
	// host is the memory on the host of each of them.
	host map[int]uint64
}

func newOwner(labels []string) *owner {
	return &owner{labels, 0, make(map[place]uint64), make(map[int]uint64)}
}

// each sends the memory of owners. Processes whose first label is empty have none.
func (c *collector) each(out output, kind ownerKind, running map[int]*memory.Process, labelsOf func(*memory.Process) []string) {
	owners := make(map[string]*owner)
	var list []*owner
	for i := range c.Devices {
		for _, share := range c.Devices[i].Processes {
			p := running[share.PID]
			if p == nil {
				continue
			}
			labels := labelsOf(p)
			if labels[0] == "" {
				continue
			}
			// what is printed has to differ, not what programs gave
			for i := range labels {
				labels[i] = event.Printable(labels[i])
			}
			key := strings.Join(labels, "\x00")
			o := owners[key]
			if o == nil {
				o = newOwner(labels)
				owners[key], list = o, append(list, o)
			}
			if p.Host != nil {
				o.host[p.PID] = p.Host.ResidentBytes
			}
			for region, n := range share.AllocatedBytes {
				o.bytes[place{c.Devices[i].ID, region}] += n
				o.total += n
			}
		}
	}
	slices.SortFunc(list, func(a, b *owner) int {
		return cmp.Or(-cmp.Compare(a.total, b.total), slices.Compare(a.labels, b.labels))
	})
	own, series := 0, 0 // owners with series of their own, and the number of these
	for own < min(len(list), c.o.Processes) && series+len(list[own].bytes) <= maxSeries {
		series += len(list[own].bytes)
		own++
	}
	if len(list) > own {
		list = withOthers(list, own)
	}
	for _, o := range list {
		for at, n := range o.bytes {
			out.gauge(kind.used, n, append([]string{strconv.Itoa(at.chip), at.region}, o.labels...)...)
		}
		if len(o.host) > 0 {
			sum := uint64(0)
			for _, n := range o.host {
				sum += n
			}
			out.gauge(kind.host, sum, slices.Clone(o.labels)...)
		}
	}
}

// withOthers adds up the owners after the first n, and any that has the name of that sum.
func withOthers(list []*owner, n int) []*owner {
	rest := newOwner(make([]string, len(list[0].labels)))
	rest.labels[0] = other
	kept := make([]*owner, 0, n+1)
	for i, o := range list {
		if i < n && !slices.Equal(o.labels, rest.labels) {
			kept = append(kept, o)
			continue
		}
		for at, bytes := range o.bytes {
			rest.bytes[at] += bytes
		}
		maps.Copy(rest.host, o.host)
	}
	return append(kept, rest)
}
