package main

import (
	"testing"

	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/eventlog"
)

// BenchmarkLog lists the events of a model: as text, and as JSON.
func BenchmarkLog(b *testing.B) {
	events := readStory(b, storyEvents(goldenFolder, "inference")).events
	for name, json := range map[string]bool{"text": false, "JSON": true} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				l := eventlog.New(eventlog.Options{JSON: json}, &eventlog.Filter{Frequent: true}, nil, page.Layout{}, func([]byte) {})
				for i := range events {
					e := events[i]
					l.Handle(&e)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
		})
	}
}
