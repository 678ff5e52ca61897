package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
)

// soakFigures are what may not grow, in columns of the table.
var soakFigures = []struct {
	name string
	// slack is the part by which garbage that is not collected yet lets a figure vary; short is the
	// same for runs shorter than cachesFill.
	slack, short float64
}{
	{"MiB", 0.1, 0.5}, {"files", 0, 1}, {"goroutines", 0, 0.25}, {"threads", 0.25, 1}, // of the service
	{"maps", 0, 0}, {"entries", 0, 0}, {"map KiB", 0.05, 0.05}, // of BPF
	{"top MiB", 0.1, 0.5}, {"top files", 0, 0.25},
}

// soakSample are the figures when no program runs, and the entries of each map.
type soakSample struct {
	figures []float64
	entries map[string]int
}

// sample checks that nothing remains of the programs, and prints a line of the table.
func (s *soak) sample(after time.Duration) {
	time.Sleep(time.Second) // what ended programs had is given back in the background
	snapshot := s.snapshot(s.t)
	assertTotals(s.t, snapshot)
	s.checkLosses()
	qt.Check(s.t, qt.Equals(snapshot.Anomalies, memory.Anomalies{}))
	h, err := s.Health(context.Background())
	qt.Assert(s.t, qt.IsNil(err))
	one := soakSample{entries: make(map[string]int)}
	var mapBytes uint64
	mapCount := 0
	ids := objectsOf(s.t, s.Process.Pid).maps
	slices.Sort(ids)
	for _, id := range slices.Compact(ids) {
		m, err := ebpf.NewMapFromID(id)
		if err != nil {
			continue // given back meanwhile
		}
		info, err := m.Info()
		qt.Assert(s.t, qt.IsNil(err))
		bytes, _ := info.Memlock()
		mapBytes += bytes
		mapCount++
		if m.Type() == ebpf.Hash {
			var key, value []byte
			for all := m.Iterate(); all.Next(&key, &value); {
				one.entries[info.Name]++
			}
		}
		m.Close()
	}
	entries := 0
	for n := range maps.Values(one.entries) {
		entries += n
	}
	top := s.topPID()
	one.figures = []float64{
		residentMiB(s.Process.Pid), float64(descriptors(s.t, s.Process.Pid)), float64(h.Goroutines), statusOf(s.Process.Pid, "Threads"),
		float64(mapCount), float64(entries), float64(mapBytes >> 10), residentMiB(top), float64(descriptors(s.t, top)),
	}
	if len(s.samples) == 0 {
		line := "      time  programs  killed"
		for _, f := range soakFigures {
			line += fmt.Sprintf("%12s", f.name)
		}
		s.t.Log(line)
	}
	line := fmt.Sprintf("%10v%10d%8d", after.Round(time.Second), len(s.pids), s.killed)
	for _, f := range one.figures {
		line += fmt.Sprintf("%12.0f", f)
	}
	s.t.Log(line)
	s.samples = append(s.samples, one)
}

// cachesFill is how long caches may take to fill.
const cachesFill = 5 * time.Minute

// judge finds figures that grow. The first third of the samples is not judged: caches fill. A
// figure grows if all of the last third are above all of the second: what is flat but varies
// comes down again.
func (s *soak) judge() {
	third := len(s.samples) / 3
	before, after := s.samples[third:len(s.samples)-third], s.samples[len(s.samples)-third:]
	for i, f := range soakFigures {
		of := func(a, b soakSample) int { return cmp.Compare(a.figures[i], b.figures[i]) }
		most, least := slices.MaxFunc(before, of).figures[i], slices.MinFunc(after, of).figures[i]
		slack, verdict := f.slack, "flat"
		if *soakFor < cachesFill {
			slack = f.short
		}
		if least > most*(1+slack) {
			verdict = "grows"
			s.t.Errorf("%s: %.0f or more in the last third, %.0f at most before; entries of maps: %v, then %v", f.name, least, most,
				before[0].entries, s.samples[len(s.samples)-1].entries)
		}
		s.t.Logf("%-12s %-6s %.0f at most in the second third, %.0f at least in the last", f.name, verdict, most, least)
	}
}

// topPID is the top in the terminal, which a shell started.
func (s *soak) topPID() (pid int) {
	shell := strings.TrimSpace(s.top.tmux("display-message", "-p", "#{pane_pid}"))
	children, err := os.ReadFile(fmt.Sprintf("/proc/%s/task/%s/children", shell, shell))
	qt.Assert(s.t, qt.IsNil(err))
	_, err = fmt.Sscan(string(children), &pid)
	qt.Assert(s.t, qt.IsNil(err), qt.Commentf("top has ended: %s", s.top.screen()))
	return pid
}

// residentMiB is the memory that a process has, without what it maps of files.
func residentMiB(pid int) float64 { return statusOf(pid, "RssAnon") / 1024 }

// statusOf is a number in /proc/PID/status; 0 if it is not there.
func statusOf(pid int, name string) (n float64) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}
