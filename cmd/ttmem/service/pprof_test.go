package service

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"

	"ttmem/tracer/event"
)

// profileFrom reads a profile over TCP, with the token.
func profileFrom(t *testing.T, addr, path string) *profile.Profile {
	t.Helper()
	status, text := get(t, addr, path, "", testToken)
	qt.Assert(t, qt.Equals(status, 200), qt.Commentf("%s", text))
	p, err := profile.ParseData([]byte(text))
	qt.Assert(t, qt.IsNil(err))
	return p
}

// sums adds up the samples of each user's function.
func sums(p *profile.Profile) map[string][]int64 {
	all := make(map[string][]int64)
	for _, s := range p.Sample {
		name := s.Location[0].Line[0].Function.Name
		if all[name] == nil {
			all[name] = make([]int64, len(s.Value))
		}
		for i, n := range s.Value {
			all[name][i] += n
		}
	}
	return all
}

// What is live is what the snapshot has, also after frees and the end of a process; what was
// allocated only rises.
func TestProfilesOfTheService(t *testing.T) {
	const bytes = 12 << 10 // of a buffer
	host := newHost()
	host.start(10, 1000)
	host.start(20, 2000)
	for range 5 {
		host.alloc(10, 1000)
		host.alloc(20, 2000)
	}
	host.free(10)
	host.free(10)
	_, addr := serve(t, host.hub)
	live := profileFrom(t, addr, "/debug/pprof/device_memory")
	qt.Check(t, qt.DeepEquals(sums(live), map[string][]int64{"function_of_1000": {3, 3 * bytes}, "function_of_2000": {5, 5 * bytes}}))
	qt.Check(t, qt.Equals(live.SampleType[1].Type+" "+live.SampleType[1].Unit, "inuse_space bytes"))
	qt.Check(t, qt.Equals(live.DefaultSampleType, "inuse_space"))
	qt.Check(t, qt.IsTrue(time.Since(time.Unix(0, live.TimeNanos)) < time.Minute))
	qt.Check(t, qt.Equals(live.DurationNanos, 0)) // Parca would take it for differences
	all := profileFrom(t, addr, "/debug/pprof/device_memory_alloc")
	qt.Check(t, qt.DeepEquals(sums(all), map[string][]int64{"function_of_1000": {5, 5 * bytes}, "function_of_2000": {5, 5 * bytes}}))

	host.apply(event.Event{Kind: event.ProcessExit, PID: 20, TID: 20})
	live = profileFrom(t, addr, "/debug/pprof/device_memory")
	qt.Check(t, qt.DeepEquals(sums(live), map[string][]int64{"function_of_1000": {3, 3 * bytes}}))
}

// A profile is of DRAM, or of the region that is asked for: what servers of profiles add up is a sum.
func TestProfilesAreOfOneRegion(t *testing.T) {
	host := newHost()
	host.start(10, 1000)
	host.alloc(10, 1000)
	host.apply(event.Event{
		Kind: event.CBAlloc, PID: 10, TID: 10, Region: event.CB, StaticKind: event.CircularBuffer, Devices: []int{0},
		ProgramID: 1, Address: 1 << 17, SizeBytes: 4096, Cores: []event.CoreRange{{}},
	})
	_, addr := serve(t, host.hub)
	for query, want := range map[string]int64{"": 12 << 10, "?region=DRAM": 12 << 10, "?region=cb": 4096, "?region=L1": 0, "?region=all": 12<<10 + 4096} {
		sum := int64(0)
		for _, s := range profileFrom(t, addr, "/debug/pprof/device_memory"+query).Sample {
			sum += s.Value[1]
		}
		qt.Check(t, qt.Equals(sum, want), qt.Commentf(query))
	}
}

// With seconds, a profile has the allocations that were made in this time.
func TestAProfileOfSomeSeconds(t *testing.T) {
	t.Parallel()
	host := newHost()
	host.start(10, 1000)
	for range 1000 {
		host.alloc(10, 1000)
	}
	_, addr := serve(t, host.hub)
	done := make(chan map[string][]int64)
	began := time.Now()
	go func() {
		p := profileFrom(t, addr, "/debug/pprof/device_memory_alloc?seconds=1")
		qt.Check(t, qt.Equals(p.DurationNanos, int64(time.Second)))
		done <- sums(p)
	}()
	for allocated := 0; ; allocated++ {
		select {
		case got := <-done:
			n := got["function_of_1000"][0]
			qt.Check(t, qt.IsTrue(n > 0 && n <= int64(allocated)), qt.Commentf("%d of %d", n, allocated))
			qt.Check(t, qt.IsTrue(time.Since(began) >= time.Second))
			return
		case <-time.After(10 * time.Millisecond):
			host.alloc(10, 1000)
		}
	}
}

// Users get profiles of their own processes, and TCP clients without the token none.
func TestProfilesAreOfTheViewersProcesses(t *testing.T) {
	host := testHub()
	host.start(20, 4321)
	host.alloc(20, 4321)
	p, err := host.hub.profileOf(t.Context(), Viewer{UID: 4321}, allRegions)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.HasLen(p.Samples, 1))
	qt.Check(t, qt.HasLen(p.Processes, 1))
	// the id is now of another user's process
	host.apply(event.Event{Kind: event.ProcessExit, PID: 20, TID: 20})
	host.start(20, 4322)
	host.alloc(20, 4322)
	p, err = host.hub.profileOf(t.Context(), Viewer{UID: 4322}, allRegions)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(len(p.Samples), 1))
	qt.Check(t, qt.Not(qt.StringContains(fmt.Sprint(p.Samples[0].Stack.Frames(), p.Processes), "4321")))

	path, addr := serve(t, host.hub)
	for _, path := range []string{"/debug/pprof/device_memory", "/debug/pprof/device_memory_alloc"} {
		status, text := get(t, addr, path, "", "")
		qt.Check(t, qt.Equals(status, 403))
		qt.Check(t, qt.StringContains(text, "ttmem: profiles have call stacks"))
	}
	for _, wrong := range []string{"_alloc?seconds=301", "?region=L3"} {
		status, _ := get(t, addr, "/debug/pprof/device_memory"+wrong, "", testToken)
		qt.Check(t, qt.Equals(status, 400))
	}
	if os.Getuid() == 0 {
		answer := talk(t, path, "GET /debug/pprof/device_memory HTTP/1.0\r\n\r\n")
		qt.Check(t, qt.IsTrue(strings.HasPrefix(answer, "HTTP/1.0 200 OK")))
	}
}
