package diff

import (
	"ttmem/aggregate/memory"
)

// Document is the output of `ttmem diff --json`.
type Document struct {
	V int  `json:"v"`
	A file `json:"a"`
	B file `json:"b"`
	// Totals are by chip and region, and Groups by --by.
	Totals []Total  `json:"totals"`
	By     string   `json:"by"`
	Groups []*Group `json:"groups"`
	// Same is the number of groups that are left out because they do not differ, Moved how many
	// of these have another line, and Omitted the number of groups that -n leaves out.
	Same    int `json:"same"`
	Moved   int `json:"moved,omitempty"`
	Omitted int `json:"omitted"`
}

// file is a moment of a recording, or of running processes.
//
//schema:diff_side
type file struct {
	// File is the recording; empty for running processes, which are in PIDs.
	File   string `json:"file"`
	PIDs   []int  `json:"pids,omitempty"`
	Moment string `json:"moment"`
	// TimeNs is left out for peaks, which are at different times.
	TimeNs uint64 `json:"time_ns,omitempty"`
	WallNs int64  `json:"wall_ns,omitempty"`
	memory.AllLosses
}

// Document returns the JSON document.
func (d *Difference) Document() any {
	of := func(s *Side) file {
		f := file{Moment: s.Moment, AllLosses: s.Losses}
		if s.Live {
			f.PIDs = s.PIDs
		} else {
			f.File = s.Path
		}
		if s.TimeNs > 0 {
			f.TimeNs, f.WallNs = s.TimeNs, s.Clock.Wall(s.TimeNs)
		}
		return f
	}
	doc := &Document{V: 1, A: of(d.a), B: of(d.b), Totals: append([]Total{}, d.Totals...), By: d.by, Groups: append([]*Group{}, d.Groups...), Same: d.Same, Moved: d.Moved, Omitted: d.cutOff}
	return doc
}
