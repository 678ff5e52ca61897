package export

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A speedscope is a document of https://www.speedscope.app/file-format-schema.json.
type speedscope struct {
	Schema string `json:"$schema"`
	Name   string `json:"name"`
	// Exporter is the program that wrote it.
	Exporter string `json:"exporter"`
	// ActiveProfile is the profile that is shown first.
	ActiveProfile int `json:"activeProfileIndex"`
	Shared        struct {
		Frames []speedscopeFrame `json:"frames"`
	} `json:"shared"`
	Profiles []speedscopeProfile `json:"profiles"`
}

type speedscopeFrame struct {
	Name string `json:"name"`
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// A speedscopeProfile has one value of one region. Its samples are stacks of frames, by number, from
// the outermost to the innermost.
type speedscopeProfile struct {
	Type       string   `json:"type"`
	Name       string   `json:"name"`
	Unit       string   `json:"unit"`
	StartValue uint64   `json:"startValue"`
	EndValue   uint64   `json:"endValue"`
	Samples    [][]int  `json:"samples"`
	Weights    []uint64 `json:"weights"`
}

// Speedscope writes a document with a profile for each value of each region: bytes of different
// regions do not add up. The outermost frames are the process and the chip. The profile of
// Options.Value of the region with most of it is shown first.
//
// It returns the number of different stacks.
func Speedscope(w io.Writer, p *memory.Profile, o Options) (stacks int, err error) {
	doc := speedscope{
		Schema: "https://www.speedscope.app/file-format-schema.json", Exporter: "ttmem",
		Name: event.Printable(cmp.Or(o.Of, "Memory of Tenstorrent devices")),
	}
	frameIDs := make(map[speedscopeFrame]int)
	frame := func(f speedscopeFrame) int {
		f.Name, f.File = event.Printable(f.Name), event.Printable(f.File)
		id, ok := frameIDs[f]
		if !ok {
			id = len(doc.Shared.Frames)
			frameIDs[f] = id
			doc.Shared.Frames = append(doc.Shared.Frames, f)
		}
		return id
	}
	processes, seen := processNames(p), make(distinct)
	calls := make([][]int, len(p.Samples)) // of each sample
	for i := range p.Samples {
		s := &p.Samples[i]
		seen.add(s.Stack)
		calls[i] = []int{frame(speedscopeFrame{Name: processes.process(s.PID)}), frame(speedscopeFrame{Name: deviceName(s.Device)})}
		for _, f := range slices.Backward(frames(s.Stack)) {
			calls[i] = append(calls[i], frame(speedscopeFrame{FrameText(&f), cmp.Or(f.File, f.Module), f.Line}))
		}
	}
	most := uint64(0)
	for region := range event.NumRegions {
		for _, v := range Values {
			one := speedscopeProfile{Type: "sampled", Name: region.String() + " " + v.about, Unit: "bytes"}
			if v.Unit == "count" {
				one.Name, one.Unit = one.Name+" (objects)", "none"
			}
			for i := range p.Samples {
				if s := &p.Samples[i]; s.Region == region && v.Of(s) > 0 {
					one.Samples, one.Weights = append(one.Samples, calls[i]), append(one.Weights, v.Of(s))
					one.EndValue += v.Of(s)
				}
			}
			if one.EndValue == 0 {
				continue
			}
			if v.Name == cmp.Or(o.Value, "peak_space") && one.EndValue > most {
				most, doc.ActiveProfile = one.EndValue, len(doc.Profiles)
			}
			doc.Profiles = append(doc.Profiles, one)
		}
	}
	out := bufio.NewWriter(w)
	if err := json.NewEncoder(out).Encode(&doc); err != nil {
		return 0, err
	}
	return len(seen), out.Flush()
}
