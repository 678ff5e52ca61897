package report

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/analyze"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestWhatTheRuntimeRetainsIsNamed: if it grows to the end, or has more than a quarter of a region.
func TestWhatTheRuntimeRetainsIsNamed(t *testing.T) {
	cached := event.StackOf([]event.Frame{
		{Kind: event.Native, Name: "ttnn::device_operation::detail::create_and_cache_mesh_workload"},
		{Kind: event.Python, Name: "pool", File: "/srv/model.py", Line: 14},
	})
	const bank = 1000 // of L1_SMALL
	for name, test := range map[string]struct {
		first, each uint64 // bytes of a bank at the start, and in each of ten steps
		grows       bool
		text        string
	}{
		"little at the start":        {first: bank / 10},
		"a quarter":                  {first: bank / 4},
		"more than a quarter":        {first: bank/4 + 1, text: "Retained by the runtime: program cache, 25% of L1_SMALL"},
		"a little with each shape":   {each: 1, grows: true, text: "Retained by the runtime: program cache, still growing, 1% of L1_SMALL"},
		"all of it, with each shape": {each: bank / 10, grows: true, text: "Retained by the runtime: program cache, still growing, 100% of L1_SMALL"},
	} {
		t.Run(name, func(t *testing.T) {
			r := pagetest.NewRun()
			r.Start(7, "python3 model.py")
			r.Apply(event.Event{Kind: event.DeviceOpen, PID: 7, Allocator: 1, Devices: []int{0}, Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{
				event.DRAM: {Banks: 12, BytesPerBank: 1 << 20}, event.L1Small: {Banks: 8, BytesPerBank: bank},
			}}})
			alloc := func(bytes uint64) {
				r.Id++
				r.Apply(event.Event{
					Kind: event.Alloc, PID: 7, Allocator: 1, BufferID: r.Id, Devices: []int{0}, Region: event.L1Small, SizeBytes: bytes * 8,
					BytesPerBank: bytes, Banks: 8, Stack: cached,
				})
			}
			if test.first > 0 {
				alloc(test.first)
			}
			for range 10 {
				if test.each > 0 {
					alloc(test.each)
				}
				for range 4 {
					r.Free(7, r.Alloc(7, event.DRAM, 1024, 12, 0))
				}
			}
			list := retainedIn(analyze.Leaks(r.State, analyze.LeakOptions{}).Sites, r.State.RegionPeaks(), 0)
			text := pagetest.Text(t, &Page{Snapshot: r.State.Snapshot(), Options: Options{State: r.State}}, page.Layout{Width: 100, Painter: page.Painter{}})
			if test.text == "" {
				qt.Check(t, qt.HasLen(list, 0))
				qt.Check(t, qt.StringContains(text, "✓ No leaks found\n"))
				return
			}
			qt.Assert(t, qt.HasLen(list, 1))
			qt.Check(t, qt.Equals(list[0].grows, test.grows))
			qt.Check(t, qt.StringContains(text, "No leaks found\n"+test.text+"\n"))
			qt.Check(t, qt.StringContains(text, "of L1_SMALL; device.clear_program_cache() frees it\n"))
		})
	}
}
