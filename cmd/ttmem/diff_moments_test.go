package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/source"
	"ttmem/tracer/event"
)

// amounts are those of call sites on each chip.
type amounts map[string]memory.Amount

func (a amounts) add(site memory.SiteAmount) {
	stack, devices := site.Stack.Frames(), site.Devices
	site.Stack = nil
	for _, id := range devices {
		site.Devices = []int{id}
		key := fmt.Sprintf("%+v %+v", site.Site, stack)
		sum := a[key]
		sum.Add(site.Amount)
		a[key] = sum
	}
}

func amountsOf(p *analyze.Parts) amounts {
	all := make(amounts)
	for _, one := range p.List {
		all.add(one.SiteAmount)
	}
	return all
}

// TestADifferenceNeedsNoPass: what the state at the end of a recording has of buffers that
// were never freed, and of the peaks, is what all its events say.
func TestADifferenceNeedsNoPass(t *testing.T) {
	for _, s := range goldenStories {
		t.Run(s.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), s.name+".ttmem")
			readStory(t, storyEvents(goldenFolder, s.name)).record(t, path, 200)
			side := (&diffOptions{}).newSide(path, moment.Moment{Kind: moment.Unfreed})
			_, err := new(diffOptions).readSides(&source.Recording{Path: path, Quiet: true}, side)
			qt.Assert(t, qt.IsNil(err))

			state, unfreed := aggregate.New(), make(amounts)
			type buffer struct {
				pid int
				id  uint64
			}
			stacks, bytes := make(map[buffer]*event.Stack), make(map[buffer]uint64)
			_, err = (&source.Options{File: path}).Watch(state.Completed(func(e *event.Event) {
				if e.Kind == event.Alloc {
					stacks[buffer{e.PID, e.BufferID}], bytes[buffer{e.PID, e.BufferID}] = e.Stack, e.BytesPerBank*uint64(state.Banks(e))
				}
				if e.Kind == event.Free && (e.Reason == event.ReasonDeviceClose || e.Reason == event.ReasonProcessExit) {
					unfreed.add(memory.SiteAmount{
						Site: memory.Site{
							PID: e.PID, Stack: stacks[buffer{e.PID, e.BufferID}], Region: e.Region, Layout: e.Layout, BeforeAttach: e.BeforeAttach, PerCore: e.PerCore, Devices: e.Devices,
						},
						Amount: memory.Amount{Count: 1, Bytes: bytes[buffer{e.PID, e.BufferID}]},
					})
				}
			}))
			qt.Assert(t, qt.IsNil(err))
			for _, live := range state.CallSites() {
				if live.Count > 0 {
					unfreed.add(live.SiteAmount)
				}
			}
			qt.Check(t, qt.DeepEquals(amountsOf(&side.Parts), unfreed))

			var peaks analyze.Parts
			_, err = (&source.Recording{Path: path}).StateAt(moment.Moment{Kind: moment.Peak}, func(s *source.State, of moment.Regions) {
				peaks.AddLive(s.State, of)
			})
			qt.Assert(t, qt.IsNil(err))
			// at a peak, only the program that runs has circular buffers
			qt.Check(t, qt.DeepEquals(withoutStatics(amountsOf(&side.peaks)), withoutStatics(amountsOf(&peaks))))
		})
	}
}

// withoutStatics removes circular buffers.
func withoutStatics(all amounts) amounts {
	maps.DeleteFunc(all, func(site string, _ memory.Amount) bool { return strings.Contains(site, " Region:CB ") })
	return all
}
