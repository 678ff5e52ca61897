package aggregate_test

import (
	"fmt"

	"ttmem/aggregate"
	"ttmem/aggregate/name"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// What is live in each region of each chip.
func ExampleState_Snapshot() {
	state := aggregate.New()
	for _, e := range pagetest.Model() {
		state.Apply(&e)
	}
	for _, chip := range state.Snapshot().Devices {
		for region := range event.Region(event.BankedRegions) {
			use := chip.Regions.Banked(region)
			if use.CapacityBytes > 0 {
				fmt.Printf("chip %d, %v: %d of %d bytes in each bank\n", chip.ID, region, use.BytesPerBank, use.CapacityBytesPerBank)
			}
		}
	}
	// Output:
	// chip 0, DRAM: 10485760 of 1073741824 bytes in each bank
	// chip 0, L1: 0 of 1048576 bytes in each bank
}

// Which call sites have the live memory.
func ExampleState_CallSites() {
	state := aggregate.New()
	for _, e := range pagetest.Model() {
		state.Apply(&e)
	}
	for _, site := range state.CallSites() {
		if site.Count > 0 {
			fmt.Println(site.Region, site.Count, "buffers,", site.Bytes, "bytes:", name.Of(site.Stack.Frames()))
		}
	}
	// Unordered output:
	// DRAM 3 buffers, 75497472 bytes: model.py:12 load · ttnn.from_torch
	// DRAM 4 buffers, 50331648 bytes: model.py:33 step · ttnn.add
}

// The peak of each region, and what it was made of.
func ExampleState_RegionPeaks() {
	state := aggregate.New()
	for _, e := range pagetest.Model() {
		state.Apply(&e)
	}
	for _, peak := range state.RegionPeaks() {
		fmt.Printf("chip %d, %v: %d bytes\n", peak.Device, peak.Region, peak.Bytes)
		for _, holder := range peak.Holders {
			fmt.Println(" ", holder.Bytes, name.Of(holder.Stack.Frames()))
		}
	}
	// Output:
	// chip 0, DRAM: 125829120 bytes
	//   75497472 model.py:12 load · ttnn.from_torch
	//   50331648 model.py:33 step · ttnn.add
	// chip 0, L1: 262144 bytes
	//   262144 model.py:31 step · ttnn.matmul
}

// An event that contradicts the state is counted, and changes nothing.
func ExampleState_Apply() {
	state := aggregate.New()
	state.Apply(&event.Event{Kind: event.Free, TimeNs: 1, PID: 4242, BufferID: 7, Devices: []int{0}})
	fmt.Printf("%+v\n", state.Snapshot().Anomalies)
	// Output:
	// {RepeatedFrees:1 ReplacedBuffers:0 UnplacedBuffers:0 UnknownCores:0 MalformedEvents:0}
}
