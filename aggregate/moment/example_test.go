package moment_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/aggregate/name"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// model is the path of a recording: see pagetest.Model.
var model string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "")
	if err == nil {
		model, err = pagetest.ModelFile(folder)
	}
	if err != nil {
		panic(err)
	}
	status := m.Run()
	os.RemoveAll(folder)
	os.Exit(status)
}

// The events of a recording, one after the other.
func ExampleFile_Play() {
	f, err := moment.Open(model, "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer f.Close()
	_, err = f.Play(context.Background(), func(e *event.Event) {
		if e.Kind == event.AllocFailed {
			fmt.Println(e.Region, e.SizeBytes, name.Of(e.Stack.Frames()))
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// L1 134217728 model.py:31 step · ttnn.matmul
}

// The states at a moment: each region of each chip has its peak at a time of its own.
func ExampleRecording_StateAt() {
	at, err := moment.Parse("peak")
	if err != nil {
		fmt.Println(err)
		return
	}
	r := &moment.Recording{Path: model}
	err = r.StateAt(at, func(s *moment.State) {
		for _, b := range s.Buffers() {
			if slices.ContainsFunc(b.Devices, func(chip int) bool { return s.Regions(chip, b.Region) }) {
				fmt.Println(b.Region, b.AllocatedBytes(), name.Of(b.Stack.Frames()))
			}
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// L1 16777216 model.py:31 step · ttnn.matmul
	// DRAM 25165824 model.py:12 load · ttnn.from_torch
	// DRAM 25165824 model.py:12 load · ttnn.from_torch
	// DRAM 25165824 model.py:12 load · ttnn.from_torch
	// DRAM 12582912 model.py:33 step · ttnn.add
	// DRAM 12582912 model.py:33 step · ttnn.add
	// DRAM 12582912 model.py:33 step · ttnn.add
	// DRAM 12582912 model.py:33 step · ttnn.add
}

// What a program allocated after the mark warm and had not freed at the mark trained.
func ExampleRecording_Play() {
	warm, err := moment.Parse("warm")
	if err != nil {
		fmt.Println(err)
		return
	}
	trained, err := moment.Parse("trained")
	if err != nil {
		fmt.Println(err)
		return
	}
	r, span := &moment.Recording{Path: model}, moment.Span{From: warm, To: trained}
	list, err := r.Intervals(span)
	if err != nil {
		fmt.Println(err)
		return
	}
	begin := func(s *aggregate.State, at memory.Point) { s.FollowFrom(at.TimeNs) }
	err = r.Play(span, list, begin, func(s *moment.State) {
		survivors, _ := s.Between(nil, list.Times())
		for _, site := range survivors {
			fmt.Println(site.Region, site.Count, site.Bytes, name.Of(site.Stack.Frames()))
		}
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// DRAM 3 37748736 model.py:33 step · ttnn.add
}

// The moments that a recording has.
func ExampleRecording_End() {
	end, summary, err := (&moment.Recording{Path: model}).End()
	if err != nil {
		fmt.Println(err)
		return
	}
	index := end.Index()
	for _, mark := range index.Marks {
		fmt.Println("mark", mark.Name)
	}
	for _, peak := range index.Peaks {
		fmt.Println("peak of", peak.Region, "on chip", peak.Device, peak.Bytes)
	}
	fmt.Println(len(index.Failures), "failure,", len(summary.Notes), "notes")
	// Output:
	// mark warm
	// mark trained
	// peak of DRAM on chip 0 125829120
	// peak of L1 on chip 0 262144
	// 1 failure, 0 notes
}

// An error names what is wrong.
func ExampleParse() {
	for _, text := range []string{"failure#2", "2.5s", "step#0", "warm#2"} {
		at, err := moment.Parse(text)
		if err == nil {
			err = (&moment.Recording{Path: model, Name: "model.ttmem"}).StateAt(at, func(s *moment.State) { fmt.Println(s.Moment.String()) })
		}
		if err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// no failure#2 in model.ttmem: 1 allocation failed
	// model.ttmem ends before 2.5s: its last event is at 1.9s
	// step#0: numbers begin at 1: step#1 is the first
	// no mark warm#2 in model.ttmem: there is 1 of that name
}
