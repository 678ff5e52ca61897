package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestManyChipsAreSummarized: of 32 chips that are used differently, those with the least free
// space are drawn; a line names the other chips that are as full.
func TestManyChipsAreSummarized(t *testing.T) {
	var events []event.Event
	for id := range 32 {
		events = append(events, event.Event{Kind: event.DeviceOpen, PID: 4242, Allocator: uint64(id), Devices: []int{id}, Open: &event.Open{Capacities: pagetest.Capacities}})
		for i := range uint64(id/2 + 1) { // two chips have as much, in buffers of their own
			events = append(events, pagetest.Buffer(event.Alloc, uint64(id)<<8+i, event.DRAM, 0x1000+i*0x1000, 0x1000, pagetest.Stack("empty", "Model.load", 10), id))
		}
	}
	path := writeEvents(t, "many.ttmem", events)
	text := func(o viewOptions, layout page.Layout) string {
		o.at = "end"
		return pagetest.Text(t, mapOf(t, path, o), layout)
	}
	drawn := text(viewOptions{n: 12}, page.Layout{})
	for _, title := range []string{"\nchip 28 ", "\nchip 29 ", "\nchip 30 ", "\nchip 31 "} {
		qt.Check(t, qt.StringContains(drawn, title))
	}
	qt.Check(t, qt.Equals(strings.Count(drawn, "\nchip "), 4))
	// the 1 MiB of a bank less what 14 buffers take
	qt.Check(t, qt.StringContains(drawn, "   56.0 KiB     968.0 KiB  968.0 KiB       14      1  26, 27\n"))
	qt.Check(t, qt.StringContains(drawn, "--chip N draws one, -n 0 all"))
	qt.Check(t, qt.IsTrue(strings.Count(drawn, "\n") < 140), qt.Commentf("%d lines", strings.Count(drawn, "\n")))
	qt.Check(t, qt.Equals(strings.Count(text(viewOptions{n: 0}, page.Layout{}), "\nchip "), 32))
	qt.Check(t, qt.Equals(strings.Count(text(viewOptions{n: 12, devices: []int{0, 1, 2, 3, 4, 5}}, page.Layout{}), "\nchip "), 6))
	pagetest.CheckWidth(t, text(viewOptions{n: 12}, page.Layout{Width: 40}), 40)
}
