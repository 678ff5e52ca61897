package phases

import (
	"ttmem/aggregate/memory"
	"ttmem/aggregate/phases"
	"ttmem/tracer/event"
)

// Document is the output of `ttmem phases --json`. Times are CLOCK_MONOTONIC.
type Document struct {
	V int `json:"v"`
	// Phases are the outermost ones, in the order of their beginnings.
	Phases []phase `json:"phases"`
	// Full is true if there were more phases than are kept.
	Full bool `json:"full,omitempty"`
	memory.AllLosses
	Notes []string `json:"notes,omitempty"`
}

// phase is a line of the user's own code, and the function that it calls.
type phase struct {
	PID  int    `json:"pid" user:"user"`
	File string `json:"file"`
	Line int    `json:"line"`
	// Function is the function that the line is in, and Calls the one that it calls; left out if the line
	// itself allocates or runs programs.
	Function string `json:"function"`
	Calls    string `json:"calls,omitempty"`
	// Entered is how often the phase began after another one, and DurationNs how long it ran in all.
	Entered    int    `json:"entered"`
	FirstNs    uint64 `json:"first_ns" wall:"first_wall_ns"`
	DurationNs uint64 `json:"duration_ns"`
	// Peaks are the highest use of each region, on the chip where it was highest, by all its processes.
	Peaks []peak `json:"peaks"`
	// LeftBytes are of the LeftCount buffers that the latest time allocated and did not free, on all chips,
	// and MostLeftBytes the most of any time.
	LeftBytes     uint64 `json:"left_bytes"`
	LeftCount     uint64 `json:"left_count"`
	MostLeftBytes uint64 `json:"most_left_bytes"`
	// Phases are those of its calls.
	Phases []phase `json:"phases,omitempty"`
}

// peak is the highest use of a region: for L1 on the fullest core, else in all banks.
type peak struct {
	Region string `json:"region" schema:"banked_region"`
	Device int    `json:"device"`
	Bytes  uint64 `json:"bytes"`
	TimeNs uint64 `json:"time_ns" wall:"wall_ns"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	return &Document{V: 1, Phases: documents(p.Phases), Full: p.Full, AllLosses: p.Snapshot.Losses(false, nil), Notes: p.Notes}
}

func documents(list []*phases.Phase) []phase {
	docs := make([]phase, 0, len(list))
	for _, f := range list {
		one := phase{
			PID: f.PID, File: f.Call.File, Line: f.Call.Line, Function: f.Call.Function, Calls: f.Function, Entered: f.Entered,
			FirstNs: f.FirstNs, DurationNs: f.TimeNs, Peaks: []peak{}, LeftBytes: f.Left.Bytes, LeftCount: f.Left.Count, MostLeftBytes: f.MostLeft.Bytes,
		}
		for region, at := range f.Peaks {
			if at.Bytes > 0 {
				one.Peaks = append(one.Peaks, peak{event.Region(region).String(), at.Device, at.Bytes, at.TimeNs})
			}
		}
		if len(f.Inner) > 0 {
			one.Phases = documents(f.Inner)
		}
		docs = append(docs, one)
	}
	return docs
}
