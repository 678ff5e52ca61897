package replay

import (
	"cmp"
	"fmt"
	"math"
	"path"
	"slices"
	"strings"

	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A Growth is how the allocations of a program grow with a parameter, such as the batch size, of which it has a recording
// for each of several values. That they grow linearly beyond these is an assumption.
type Growth struct {
	values []float64
	sites  map[siteKey]*GrowingSite
	keys   map[*event.Stack]string
}

// A siteKey is a call site in all recordings: the operation and the user's own calls, and the region.
type siteKey struct {
	calls  string
	region event.Region
}

// A GrowingSite is a call site in a region, with the bytes that are live at most in each recording.
type GrowingSite struct {
	Stack  *event.Stack // in the latest recording
	Region event.Region
	Peak   []float64
	// sizes are those of all allocations of each recording, in order.
	sizes [][]float64
	live  float64
	// values are those of Growth.
	values []float64
}

// NewGrowth returns the growth of a program over the values of its recordings.
func NewGrowth(values []float64) *Growth {
	return &Growth{values: values, sites: make(map[siteKey]*GrowingSite), keys: make(map[*event.Stack]string)}
}

func (g *Growth) key(e *event.Event) siteKey {
	key, known := g.keys[e.Stack]
	if !known {
		var text strings.Builder
		text.WriteString(name.Of(e.Stack.Frames()).Op)
		for _, call := range name.UserCalls(e.Stack.Frames()) {
			fmt.Fprintf(&text, "\n%s %s:%d", path.Base(call.File), call.Function, call.Line)
		}
		key = text.String()
		g.keys[e.Stack] = key
	}
	return siteKey{key, e.Region}
}

// Of returns a function that takes the events of the ith recording.
func (g *Growth) Of(i int) func(*event.Event) {
	type live struct {
		site      *GrowingSite
		bytes     float64
		allocator uint64
	}
	type id struct {
		pid    int
		buffer uint64
	}
	buffers := make(map[id]live)
	free := func(id id) {
		if b, is := buffers[id]; is {
			b.site.live -= b.bytes
			delete(buffers, id)
		}
	}
	clear(g.keys) // another recording has other stacks
	for _, s := range g.sites {
		s.live = 0
	}
	return func(e *event.Event) {
		switch e.Kind {
		case event.Alloc:
			key := g.key(e)
			s := g.sites[key]
			if s == nil {
				s = &GrowingSite{Region: e.Region, Peak: make([]float64, len(g.values)), sizes: make([][]float64, len(g.values)), values: g.values}
				g.sites[key] = s
			}
			free(id{e.PID, e.BufferID})
			bytes := float64(e.SizeBytes)
			s.Stack, s.sizes[i], s.live = e.Stack, append(s.sizes[i], bytes), s.live+bytes
			s.Peak[i] = max(s.Peak[i], s.live)
			buffers[id{e.PID, e.BufferID}] = live{s, bytes, e.Allocator}
		case event.Free:
			free(id{e.PID, e.BufferID})
		case event.DeviceClose, event.ProcessExit:
			for one, b := range buffers {
				if one.pid == e.PID && (e.Kind == event.ProcessExit || b.allocator == e.Allocator) {
					free(one)
				}
			}
		}
	}
}

// Sites are the call sites that grow, the fastest first, and then the others.
func (g *Growth) Sites() (list []*GrowingSite) {
	for _, s := range g.sites {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *GrowingSite) int {
		fixedA, growsA := a.Line()
		fixedB, growsB := b.Line()
		return cmp.Or(cmp.Compare(growsB, growsA), cmp.Compare(fixedB, fixedA), cmp.Compare(name.Of(a.Stack.Frames()).String(), name.Of(b.Stack.Frames()).String()),
			cmp.Compare(a.Region, b.Region))
	})
	return list
}

// Line returns the bytes that a call site has at most: fixed ones, and those for each 1 of the parameter.
func (s *GrowingSite) Line() (fixed, grows float64) { return line(s.values, s.Peak) }

// IsLinear reports whether the recordings are within a hundredth of the line.
func (s *GrowingSite) IsLinear() bool {
	fixed, grows := s.Line()
	return !slices.ContainsFunc(s.values, func(v float64) bool {
		peak := s.Peak[slices.Index(s.values, v)]
		return math.Abs(fixed+grows*v-peak) > max(peak, fixed)/100+1
	})
}

// line returns the line with the least squares to points.
func line(x, y []float64) (fixed, grows float64) {
	var sumX, sumY, sumXX, sumXY float64
	for i := range x {
		sumX, sumY, sumXX, sumXY = sumX+x[i], sumY+y[i], sumXX+x[i]*x[i], sumXY+x[i]*y[i]
	}
	n := float64(len(x))
	grows = (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	return (sumY - grows*sumX) / n, grows
}

// Grow is the program of the ith recording with another value of the parameter. If a call site has as many allocations in
// all recordings, each grows by itself; otherwise all grow as the bytes that are live at most. Circular buffers are
// as recorded.
func (g *Growth) Grow(i int, value float64) Change {
	made := make(map[siteKey]int)
	sizes := make([]float64, len(g.values))
	return Change{alloc: func(a *allocation) {
		key := g.key(a.Event)
		s := g.sites[key]
		if s == nil {
			return
		}
		nth := made[key]
		made[key]++
		same := !slices.ContainsFunc(s.sizes, func(list []float64) bool { return len(list) != len(s.sizes[i]) })
		if same && nth < len(s.sizes[i]) {
			for j := range sizes {
				sizes[j] = s.sizes[j][nth]
			}
			fixed, grows := line(g.values, sizes)
			a.size = toSize(fixed + grows*value)
		} else if fixed, grows := s.Line(); s.Peak[i] > 0 {
			a.size = toSize(float64(a.SizeBytes) * (fixed + grows*value) / s.Peak[i])
		}
	}}
}

// toSize rounds a size, which has a bound far beyond all banks.
func toSize(bytes float64) uint64 { return uint64(math.Round(min(max(bytes, 0), 1<<56))) }
