package analyze_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A story makes the events of one process. Each name of a stack is a call site.
type story struct {
	state  *aggregate.State
	now    uint64
	next   uint64
	stacks map[string]*event.Stack
}

func newStory() *story {
	return &story{state: aggregate.New(), now: 100, stacks: make(map[string]*event.Stack)}
}

func (w *story) apply(e event.Event) {
	w.now += 10
	e.TimeNs, e.PID = w.now, 7
	w.state.Apply(&e)
}

// alloc allocates 1000 bytes and gives the buffer's id. What begins with "ttnn." is the
// result of an operation.
func (w *story) alloc(site string) uint64 {
	if w.stacks[site] == nil {
		frames := []event.Frame{{Kind: event.Python, Name: site, File: "model.py", Line: len(w.stacks) + 1}}
		if len(site) > 5 && site[:5] == "ttnn." {
			frames = append([]event.Frame{{Kind: event.Native, Name: "ttnn::device_operation::detail::launch"}}, frames...)
		}
		w.stacks[site] = event.StackOf(frames)
	}
	w.next++
	w.apply(event.Event{Kind: event.Alloc, BufferID: w.next, Allocator: 1, Devices: []int{0}, BytesPerBank: 100, Banks: 10, Stack: w.stacks[site]})
	return w.next
}

func (w *story) free(ids ...uint64) {
	for _, id := range ids {
		if id != 0 {
			w.apply(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit})
		}
	}
}

func (w *story) close() { w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1}) }
func (w *story) exit()  { w.apply(event.Event{Kind: event.ProcessExit}) }

// step is an iteration of a loop: three temporary buffers, one after the other.
func (w *story) step() {
	var before uint64
	for i := range 3 {
		id := w.alloc(fmt.Sprint("temporary ", i))
		w.free(before)
		before = id
	}
	w.free(before)
}

// ring keeps the latest so many of n results, and returns them.
func (w *story) ring(kept []uint64, from, n int) {
	for i := from; i < from+n; i++ {
		w.step()
		id := w.alloc("ring")
		w.free(kept[i%len(kept)])
		kept[i%len(kept)] = id
	}
}

// joined is the story as one knows it who joins now.
func (w *story) joined() *story {
	later := *w
	later.state = aggregate.New()
	later.state.Apply(w.state.Checkpoint())
	return &later
}

// sites are the verdicts, by call site.
func (w *story) sites(o analyze.LeakOptions) map[string]analyze.Verdict {
	sites := make(map[string]analyze.Verdict)
	for _, v := range analyze.Leaks(w.state, o).Sites {
		frames := v.Stack.Frames()
		sites[frames[len(frames)-1].Name] = v
	}
	return sites
}

// leaks are the call sites that leak, in order.
func (w *story) leaks() (names []string) {
	for name, v := range w.sites(analyze.LeakOptions{}) {
		if v.Class == analyze.Leaked {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// TestWhatGrowsLeaks: each story leaks at the one site "leak", so many buffers.
func TestWhatGrowsLeaks(t *testing.T) {
	grow := func(w *story, steps int) (leaked []uint64) {
		for range steps {
			w.step()
			leaked = append(leaked, w.alloc("leak"))
		}
		return leaked
	}
	for name, test := range map[string]struct {
		play  func(w *story)
		count uint64
	}{
		"few steps":          {func(w *story) { grow(w, 16) }, 16},
		"many steps":         {func(w *story) { grow(w, 5000) }, 5000},
		"after many weights": {func(w *story) { w.loads(200); grow(w, 20) }, 20},
		"some of the steps": {func(w *story) {
			for i := range 300 {
				w.step()
				if id := w.alloc("leak"); i%10 != 0 {
					w.free(id)
				}
			}
		}, 30},
		"the first few are freed": {func(w *story) { w.free(grow(w, 3)...); grow(w, 40) }, 40},
		"device closed":           {func(w *story) { grow(w, 40); w.close() }, 40},
		"process ended":           {func(w *story) { grow(w, 40); w.exit() }, 40},
		"freed at the end":        {func(w *story) { w.free(grow(w, 40)...); w.close(); w.exit() }, 40},
		"frees that are implied": {func(w *story) {
			for _, id := range grow(w, 40) {
				w.apply(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonDeviceClose})
			}
			w.close()
			w.exit()
		}, 40},
		"in one of several openings": {func(w *story) {
			for i := range 4 {
				if w.step(); i == 1 {
					w.free(grow(w, 40)...)
				}
				w.close()
			}
		}, 40},
		"joined while it goes on": {func(w *story) {
			grow(w, 20)
			*w = *w.joined()
			grow(w, 20)
		}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory()
			test.play(w)
			qt.Check(t, qt.DeepEquals(w.leaks(), []string{"leak"}))
			leak := w.sites(analyze.LeakOptions{})["leak"]
			qt.Check(t, qt.Equals(leak.Amount, memory.Amount{Count: test.count, Bytes: 1000 * test.count}))
			qt.Check(t, qt.IsTrue(leak.Rises >= 6), qt.Commentf("%+v", leak.Run))
		})
	}
}

func (w *story) loads(weights int) {
	for range weights {
		w.alloc("weight")
	}
}

// TestWhatIsBoundedIsStable: none of these is a leak.
func TestWhatIsBoundedIsStable(t *testing.T) {
	const steps = 64
	for name, play := range map[string]func(w *story){
		"weights that are loaded before": func(w *story) {
			w.loads(32)
			for range steps {
				w.step()
			}
		},
		"weights and nothing else": func(w *story) { w.loads(100) },
		"weights that are converted, and one call": func(w *story) {
			for range 100 {
				w.free(w.alloc("row major"))
				w.alloc("ttnn.tilize")
			}
			for range 20 {
				w.step()
			}
		},
		"weights that are loaded at the first calls": func(w *story) {
			for i := range steps {
				w.step()
				if i < steps/4 {
					w.alloc("weight")
				}
			}
		},
		"a program cache that fills": func(w *story) {
			for i := range steps {
				if i < 20 {
					w.alloc("program")
				}
				w.step()
			}
		},
		"a ring":              func(w *story) { w.ring(make([]uint64, 24), 0, steps) },
		"a ring of one turn":  func(w *story) { w.ring(make([]uint64, 64), 0, 66) },
		"a ring of two turns": func(w *story) { w.ring(make([]uint64, 64), 0, 128) },
		"a full ring that is joined": func(w *story) {
			kept := make([]uint64, 64)
			w.ring(kept, 0, 200)
			*w = *w.joined()
		},
		"a full ring that is joined for some steps": func(w *story) {
			kept := make([]uint64, 64)
			w.ring(kept, 0, 200)
			*w = *w.joined()
			w.ring(kept, 200, 40)
		},
		"a full ring that is attached to": func(w *story) {
			kept := make([]uint64, 64)
			for i := range kept {
				w.next++
				kept[i] = w.next
				w.apply(event.Event{Kind: event.Alloc, BufferID: w.next, Allocator: 1, Devices: []int{0}, BytesPerBank: 100, Banks: 10, BeforeAttach: true})
			}
			w.ring(kept, 0, 40)
		},
		"a ring, freed at the end": func(w *story) {
			kept := make([]uint64, 64)
			w.ring(kept, 0, 100)
			w.free(kept...)
			w.close()
			w.exit()
		},
		"two buffers in turns": func(w *story) { w.ring(make([]uint64, 2), 0, steps) },
		"a heap that is collected now and then": func(w *story) {
			var garbage []uint64
			for i := range 10 * steps {
				w.step()
				garbage = append(garbage, w.alloc("garbage"))
				if i%30 == 28 {
					w.free(garbage...)
					garbage = nil
				}
			}
		},
		"devices that are closed": func(w *story) {
			for range steps {
				w.alloc("held to the close")
				w.step()
				w.close()
			}
		},
		"a pool with chance": func(w *story) {
			dice := rand.New(rand.NewPCG(1, 2))
			var pool []uint64
			for range 20 * steps {
				if len(pool) > 0 && dice.IntN(100) < 50 {
					i := dice.IntN(len(pool))
					w.free(pool[i])
					pool = append(pool[:i], pool[i+1:]...)
				} else {
					pool = append(pool, w.alloc("pool"))
				}
			}
		},
		"chunks of one forward": func(w *story) { // [relu(c) for c in chunk(y, 7)]
			w.loads(4)
			w.step()
			for _, site := range []string{"ttnn.chunk", "ttnn.relu"} {
				for range 7 {
					w.alloc(site)
				}
			}
		},
		"many chunks of one forward": func(w *story) {
			w.loads(4)
			w.step()
			for _, site := range []string{"ttnn.chunk", "ttnn.relu"} {
				for range 64 {
					w.alloc(site)
				}
			}
			w.exit()
		},
		"layers built and run in one loop": func(w *story) {
			for range 12 {
				w.alloc("query")
				w.alloc("out")
				w.step()
			}
			w.exit()
		},
		"ten outputs collected": func(w *story) {
			w.loads(3)
			for range 10 {
				w.step()
				w.alloc("ttnn.softmax")
			}
			w.exit()
		},
		"tensors of failed tests": func(w *story) {
			for test := range 30 {
				w.step()
				if test%4 == 0 {
					w.alloc("ttnn.add")
				}
			}
			w.exit()
		},
		"one buffer": func(w *story) { w.step(); w.alloc("one") },
		"freed, and nothing allocated since": func(w *story) {
			var held []uint64
			for range 40 {
				w.step()
				held = append(held, w.alloc("held"))
			}
			w.free(held...)
		},
		"freed while work goes on": func(w *story) {
			var held []uint64
			for range 40 {
				w.step()
				held = append(held, w.alloc("held"))
			}
			w.free(held...)
			w.step()
			w.exit()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStory()
			play(w)
			qt.Check(t, qt.HasLen(w.leaks(), 0), qt.Commentf("%+v", w.sites(analyze.LeakOptions{})))
		})
	}
}

// TestResultsAloneLeak: a program that does nothing but keep results of an operation.
func TestResultsAloneLeak(t *testing.T) {
	w := newStory()
	w.loads(2)
	for range 100 {
		w.alloc("ttnn.add")
	}
	qt.Check(t, qt.DeepEquals(w.leaks(), []string{"ttnn.add"}))
}

// TestBetweenMarks: each of some intervals keeps a buffer at one site, replaces one at
// another, and keeps one at a third in the first two. Two are there before.
func TestBetweenMarks(t *testing.T) {
	for _, test := range []struct {
		intervals, from, to int // the marks, and whether they are followed by the end
		leak, cache         analyze.Class
	}{
		{8, 0, 8, analyze.Leaked, analyze.Stable},
		{3, 0, 3, analyze.Leaked, analyze.Stable},
		{8, 0, 1, analyze.Leaked, analyze.Leaked}, // one interval: all that survived
		{8, 5, 8, analyze.Leaked, ""},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			w := newStory()
			w.alloc("leak")
			state := w.alloc("state")
			var times []uint64
			for i := range test.intervals + 1 {
				w.apply(event.Event{Kind: event.Mark, Cause: "step"})
				switch {
				case i == test.from:
					w.state.FollowFrom(w.now)
					times = []uint64{w.now}
				case i > test.from && i <= test.to:
					times = append(times, w.now)
					w.state.FollowTo(w.now)
				}
				w.step()
				w.alloc("leak")
				before := state
				state = w.alloc("state")
				w.free(before)
				if i < 2 {
					w.alloc("cache")
				}
			}
			w.close() // what ends after the second mark was live at it
			w.exit()
			sites := w.sites(analyze.LeakOptions{Times: times})
			qt.Check(t, qt.Equals(sites["leak"].Class, test.leak))
			qt.Check(t, qt.Equals(sites["leak"].Count, uint64(test.to-test.from)))
			qt.Check(t, qt.HasLen(sites["leak"].Births, test.to-test.from))
			for _, births := range sites["leak"].Births {
				qt.Check(t, qt.Equals(births.Count, 1))
			}
			qt.Check(t, qt.Equals(sites["cache"].Class, test.cache))
			qt.Check(t, qt.Not(qt.Equals(sites["state"].Class, analyze.Leaked)))
		})
	}
}

// TestFromAMarkToTheEnd: what the end of the device freed was there, and so was what was
// torn down before it, where it grew.
func TestFromAMarkToTheEnd(t *testing.T) {
	w := newStory()
	w.step()
	w.state.FollowFrom(w.now)
	times := []uint64{w.now}
	var torn []uint64
	for range 5 {
		w.step()
		w.alloc("held")
		torn = append(torn, w.alloc("torn"))
		times = append(times, w.now)
	}
	w.free(torn...)
	w.close()
	sites := w.sites(analyze.LeakOptions{Times: times})
	for _, name := range []string{"held", "torn"} {
		qt.Check(t, qt.Equals(sites[name].Class, analyze.Leaked), qt.Commentf("%s", name))
		qt.Check(t, qt.Equals(sites[name].Count, 5))
	}
}

// TestManySitesOfProcessesThatEndedAreSummed: the sum of call sites that are not listed is not lost.
func TestManySitesOfProcessesThatEndedAreSummed(t *testing.T) {
	const processes, sites = 40, 300
	w := newStory()
	for p := range processes {
		for i := range sites {
			w.alloc(fmt.Sprint(p, " ", i))
		}
		w.exit()
		clear(w.stacks)
	}
	r := analyze.Leaks(w.state, analyze.LeakOptions{})
	total := r.Others.Count
	for i := range r.Sites {
		total += r.Sites[i].Count
	}
	qt.Check(t, qt.Equals(total, processes*sites))
	qt.Check(t, qt.IsTrue(len(r.Sites) < processes*sites))
}
