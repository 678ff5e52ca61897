package metrics

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/e2e/golden"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// scrape returns what Prometheus reads.
func scrape(t *testing.T, s *memory.Snapshot, o Options) string {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	qt.Assert(t, qt.IsNil(r.Register(New(s, o))))
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	qt.Assert(t, qt.Equals(answer.Code, 200), qt.Commentf("%s", answer.Body))
	return answer.Body.String()
}

func snapshot(events []event.Event) *memory.Snapshot {
	s := aggregate.New()
	for i := range events {
		s.Apply(&events[i])
	}
	return s.Snapshot()
}

// beforeTheEnd are events without the end of the process.
func beforeTheEnd() []event.Event {
	events := pagetest.Failures()
	return events[:len(events)-1]
}

func TestMetricsOfAChipWithFailures(t *testing.T) {
	s := snapshot(append(beforeTheEnd(), event.Event{Kind: event.Lost, PID: 7, TimeNs: 2e9, Count: 3, Cause: "a test"}))
	o := Options{Version: "1.2.3", Processes: 5, Chip: func(id int) Chip {
		return Chip{Board: "n150", PCI: fmt.Sprintf("0000:0%d:00.0", id), UniqueID: "0x1"}
	}}
	golden.Check(t, "metrics.txt", scrape(t, s, o))
}

// Without the option there is no series of a process, whose name others must not see.
func TestMetricsNameNoProcessUnasked(t *testing.T) {
	text := scrape(t, snapshot(beforeTheEnd()), Options{})
	for _, secret := range []string{"python", "_process_memory", "_host_memory", "_container_memory", "_pod_memory", `pid=`} {
		qt.Check(t, qt.Not(qt.StringContains(text, secret)))
	}
	qt.Check(t, qt.StringContains(text, `ttmem_chip_info{arch="",board="",chip="0",pci_bdf="",unique_id=""} 1`))
}

// many returns processes of containers and pods, the first with the most memory.
func many(processes, chips int) []event.Event {
	var events []event.Event
	for i := range processes {
		pid := i + 1
		events = append(events, event.Event{
			Kind: event.ProcessStart, TimeNs: uint64(pid), PID: pid, UID: 1000 + i%7, Comm: fmt.Sprintf("job\n\x1b\"\\\xff-%d", i),
			Start: &event.Start{Container: fmt.Sprintf("c%d", i%5000), Pod: fmt.Sprintf("p%d", i%3000)},
		})
		for chip := range chips {
			e := pagetest.Buffer(event.Alloc, uint64(chip+1), event.DRAM, 0, uint64(processes-i), nil, chip)
			e.PID, e.TimeNs = pid, uint64(pid)
			events = append(events, e)
		}
	}
	return events
}

// The number of series does not depend on the number of processes, and no bytes are missing.
func TestCardinalityIsBounded(t *testing.T) {
	const chips, n = 4, 10
	s := snapshot(many(10_000, chips))
	began := time.Now()
	text := scrape(t, s, Options{Processes: n})
	t.Logf("%d bytes in %v", len(text), time.Since(began))
	for _, kind := range []string{"process", "container", "pod"} {
		name := "ttmem_" + kind + "_memory_used_bytes{"
		qt.Check(t, qt.Equals(strings.Count(text, "\n"+name), chips*(n+1)), qt.Commentf(kind))
		var sum, value float64
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, name) && strings.Contains(line, `chip="2"`) {
				_, err := fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &value)
				qt.Assert(t, qt.IsNil(err))
				sum += value
			}
		}
		qt.Check(t, qt.Equals(sum, float64(s.Devices[2].Regions.DRAM.AllocatedBytes)), qt.Commentf(kind))
	}
	qt.Check(t, qt.StringContains(text, `comm="job \"\\�-0",container_id="c0",pid="1",pod_uid="p0",region="DRAM",uid="1000"`))
}

// TestHostMemoryOfOwners: each process counts once, whatever chips it uses, and those without a series of their
// own together.
func TestHostMemoryOfOwners(t *testing.T) {
	events := many(4, 2)
	for i := range 4 {
		events[3*i].Start.Container, events[3*i].Start.Pod = fmt.Sprint("c", i/2), "" // two have one container
		events = append(events, event.Event{Kind: event.HostMemory, TimeNs: 5, PID: i + 1, SizeBytes: 1 << (10 + i), BytesPerBank: 1 << 20})
	}
	text := scrape(t, snapshot(events), Options{Processes: 1})
	var got []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, "_host_memory_bytes{") {
			got = append(got, line)
		}
	}
	qt.Check(t, qt.DeepEquals(got, []string{
		"ttmem_container_host_memory_bytes{container_id=\"c0\",pod_uid=\"\"} 3072\n",
		"ttmem_container_host_memory_bytes{container_id=\"other\",pod_uid=\"\"} 12288\n",
		"ttmem_process_host_memory_bytes{comm=\"\",container_id=\"\",pid=\"other\",pod_uid=\"\",uid=\"\"} 14336\n",
		"ttmem_process_host_memory_bytes{comm=\"job \\\"\\\\�-0\",container_id=\"c0\",pid=\"1\",pod_uid=\"\",uid=\"1000\"} 1024\n",
	}))
}

// A container that calls itself "other" is no second series of that name.
func TestAnOwnerNamedOther(t *testing.T) {
	events := many(4, 1)
	events[0].Start.Container, events[0].Start.Pod = other, ""
	text := scrape(t, snapshot(events), Options{Processes: 2})
	qt.Check(t, qt.Equals(strings.Count(text, `container_id="other",pod_uid=""`), 1))
}
