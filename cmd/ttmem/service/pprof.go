package service

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ttmem/aggregate/export"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// maxSeconds is the longest time for which a request may collect allocations.
const maxSeconds = 300

// What the profiles count: allocations that are live at present, and all so far.
var (
	inuse = []export.Value{
		{Name: "inuse_objects", Unit: "count", Of: func(s *memory.Sample) uint64 { return s.Live.Count }},
		{Name: "inuse_space", Unit: "bytes", Of: func(s *memory.Sample) uint64 { return s.Live.Bytes }},
	}
	allocated = []export.Value{*export.ValueOf("alloc_objects"), *export.ValueOf("alloc_space")}
)

// profileInuse sends a profile of live allocations, for pprof.
func (s *Server) profileInuse(w http.ResponseWriter, r *http.Request, v Viewer) {
	s.profile(w, r, v, 0, export.Options{Value: "inuse_space", Values: inuse})
}

// profileAlloc sends a profile of all allocations or, with the parameter seconds as Go's own
// profiles have it, of those that are made from now on.
func (s *Server) profileAlloc(w http.ResponseWriter, r *http.Request, v Viewer) {
	seconds := 0
	if asked := r.URL.Query().Get("seconds"); asked != "" {
		var err error
		if seconds, err = strconv.Atoi(asked); err != nil || seconds < 1 || seconds > maxSeconds {
			http.Error(w, fmt.Sprintf("ttmem: seconds: give a number from 1 to %d", maxSeconds), http.StatusBadRequest)
			return
		}
	}
	s.profile(w, r, v, time.Duration(seconds)*time.Second, export.Options{Value: "alloc_space", Values: allocated})
}

// profile sends a profile of the processes that the viewer may see. With a duration it waits that
// long, and has the allocations made meanwhile.
func (s *Server) profile(w http.ResponseWriter, r *http.Request, v Viewer, of time.Duration, o export.Options) {
	region, err := regionAsked(r)
	if err != nil {
		http.Error(w, "ttmem: "+err.Error(), http.StatusBadRequest)
		return
	}
	if v == Nobody {
		http.Error(w, "ttmem: profiles have call stacks of processes: use the unix socket, which identifies the user, or the token", http.StatusForbidden)
		return
	}
	s.send(w, r, v, s.streams, "application/octet-stream", func(to *bytes.Buffer) error {
		s.await(r.Context())
		o.Begun = time.Now()
		p, err := s.hub.profileOf(r.Context(), v, region)
		if err == nil && of > 0 {
			before := p
			select {
			case <-r.Context().Done():
				return r.Context().Err()
			case <-time.After(of):
			}
			if p, err = s.hub.profileOf(r.Context(), v, region); err == nil {
				subtract(p, before)
			}
		}
		if err != nil {
			return err
		}
		// A profile with a duration is one of differences: Parca decides by it.
		p.FirstNs, p.LastNs = 0, uint64(of)
		return s.hub.encoding.during(r.Context(), clientOf(r.Context(), v), func() error {
			_, err := export.Pprof(to, p, o)
			return err
		})
	})
}

// allRegions asks for a profile of all regions.
const allRegions = event.NumRegions

// regionAsked returns the region that a request names; DRAM if it names none. Servers of profiles add
// up all that a profile has, and bytes of DRAM and of L1 have no sum.
func regionAsked(r *http.Request) (event.Region, error) {
	asked := r.URL.Query().Get("region")
	switch asked {
	case "":
		return event.DRAM, nil
	case "all":
		return allRegions, nil
	}
	names := make([]string, allRegions)
	for region := range allRegions {
		if names[region] = region.String(); strings.EqualFold(names[region], asked) {
			return region, nil
		}
	}
	return 0, fmt.Errorf("region: give one of %s, or all", strings.Join(names, ", "))
}

// profileOf returns the profile of a region of the processes that a viewer may see.
func (h *Hub) profileOf(ctx context.Context, v Viewer, region event.Region) (p *memory.Profile, err error) {
	err = h.pause(ctx, clientOf(ctx, v), func() { p = h.state.ProfileOf(func(uid int) bool { return v.All || uid == v.UID }) })
	if err == nil && region != allRegions {
		p.Samples = slices.DeleteFunc(p.Samples, func(s memory.Sample) bool { return s.Region != region })
	}
	return p, err
}

// subtract leaves the allocations of a profile that an earlier one does not have. If a call site
// was forgotten meanwhile, or its process's id is another's, all its allocations are later.
func subtract(p, before *memory.Profile) {
	type key struct {
		pid, device int
		region      event.Region
		stack       uint64
	}
	keyOf := func(s *memory.Sample) key { return key{s.PID, s.Device, s.Region, memory.StackID(s.Stack)} }
	had := make(map[key]memory.Amount, len(before.Samples))
	for i := range before.Samples {
		had[keyOf(&before.Samples[i])] = before.Samples[i].Allocated
	}
	for i := range p.Samples {
		one := &p.Samples[i]
		if b := had[keyOf(one)]; b.Count <= one.Allocated.Count && b.Bytes <= one.Allocated.Bytes {
			one.Allocated.Sub(b)
		}
	}
}
