package aggregate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

// grower makes the events of one process. Each name of a stack is one.
type grower struct {
	g      *aggregate.Growth
	now    uint64
	next   uint64
	stacks map[string]*event.Stack
	pid    int
}

func newGrower(o aggregate.GrowthOptions) *grower {
	return &grower{g: aggregate.NewGrowth(o), now: 100, pid: 7, stacks: make(map[string]*event.Stack)}
}

func (w *grower) apply(e event.Event) {
	w.now += 10
	e.TimeNs, e.PID = w.now, w.pid
	w.g.Apply(&e)
}

// alloc allocates 1000 bytes at a stack and gives the buffer's id.
func (w *grower) alloc(stack string) uint64 {
	if w.stacks[stack] == nil {
		w.stacks[stack] = event.StackOf([]event.Frame{{Kind: event.Python, Name: stack, File: "model.py", Line: 1}})
	}
	w.next++
	w.apply(event.Event{Kind: event.Alloc, BufferID: w.next, Allocator: 1, Devices: []int{0}, BytesPerBank: 100, Banks: 10, Stack: w.stacks[stack]})
	return w.next
}

func (w *grower) free(ids ...uint64) {
	for _, id := range ids {
		if id != 0 {
			w.apply(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonExplicit})
		}
	}
}

func (w *grower) mark(name string) { w.apply(event.Event{Kind: event.Mark, Cause: name}) }

// left is what is left by stack; what no stack is left of is a zero value.
func (w *grower) left(t *testing.T) map[string]aggregate.Grown {
	t.Helper()
	r, err := w.g.Report()
	qt.Assert(t, qt.IsNil(err))
	left := make(map[string]aggregate.Grown)
	for _, one := range r.Left {
		left[one.Stack.Frames()[0].Name] = one
	}
	return left
}

// growing are the stacks that grow to the end.
func (w *grower) growing(t *testing.T) (names []string) {
	t.Helper()
	for name, one := range w.left(t) {
		if one.Trend.Growing {
			names = append(names, name)
		}
	}
	return names
}

// step is an iteration of a loop: three temporary buffers, one after the other.
func (w *grower) step() {
	var before uint64
	for i := range 3 {
		id := w.alloc(fmt.Sprint("temporary ", i))
		w.free(before)
		before = id
	}
	w.free(before)
}

func TestWhatIsKeptOfEachStepGrows(t *testing.T) {
	for _, steps := range []int{5, 6, 7, 8, 20, 100, 1000, 5000} {
		for _, weights := range []int{0, 3, 200} {
			t.Run(fmt.Sprintf("%d steps after %d weights", steps, weights), func(t *testing.T) {
				w := newGrower(aggregate.GrowthOptions{})
				for range weights {
					w.alloc("weights")
				}
				for range steps {
					w.step()
					w.alloc("leak")
				}
				qt.Check(t, qt.DeepEquals(w.growing(t), []string{"leak"}))
				leak := w.left(t)["leak"]
				qt.Check(t, qt.Equals(leak.Amount, aggregate.Amount{Count: uint64(steps), Bytes: uint64(steps) * 1000}))
				qt.Check(t, qt.Equals(leak.Trend.Rises, leak.Trend.Intervals))
				qt.Check(t, qt.IsFalse(leak.Trend.Lonely))
			})
		}
	}
}

func TestALeakOfSomeOfTheStepsGrows(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	for i := range 300 {
		w.step()
		if id := w.alloc("leak"); i%10 != 0 {
			w.free(id)
		}
	}
	qt.Check(t, qt.DeepEquals(w.growing(t), []string{"leak"}))
	qt.Check(t, qt.Equals(w.left(t)["leak"].Count, 30))
	qt.Check(t, qt.Equals(w.left(t)["leak"].Allocated, 300))
}

// TestWhatIsKeptAndBoundedDoesNotGrow: none of these is a leak.
func TestWhatIsKeptAndBoundedDoesNotGrow(t *testing.T) {
	const steps = 64
	for name, play := range map[string]func(w *grower){
		"weights that are loaded before": func(w *grower) {
			for range 32 {
				w.alloc("weight")
			}
			for range steps {
				w.step()
			}
		},
		"weights that are loaded at the first call": func(w *grower) {
			for i := range steps {
				w.step()
				if i < steps/4 {
					w.alloc("weight")
				}
			}
		},
		"a program cache that fills": func(w *grower) {
			for i := range steps {
				if i < 10 {
					w.alloc("program")
				}
				w.step()
			}
		},
		"a ring": func(w *grower) {
			var ring [24]uint64
			for i := range steps {
				w.step()
				w.free(ring[i%len(ring)])
				ring[i%len(ring)] = w.alloc("ring")
			}
		},
		"two buffers in turns": func(w *grower) {
			var two [2]uint64
			for i := range steps {
				w.step()
				id := w.alloc("turns")
				w.free(two[i%2])
				two[i%2] = id
			}
		},
		"a state that is replaced": func(w *grower) {
			var state uint64
			for range steps {
				w.step()
				id := w.alloc("state")
				w.free(state)
				state = id
			}
		},
		"a heap that is collected now and then": func(w *grower) {
			var garbage []uint64
			for i := range steps {
				w.step()
				garbage = append(garbage, w.alloc("garbage"))
				if i%9 == 8 {
					w.free(garbage...)
					garbage = nil
				}
			}
		},
		"few buffers": func(w *grower) {
			for range 4 {
				w.step()
				w.alloc("few")
			}
		},
		"devices that are closed": func(w *grower) {
			for range steps {
				w.alloc("held to the close")
				w.step()
				w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
			}
		},
		"a pool with chance": func(w *grower) {
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
	} {
		t.Run(name, func(t *testing.T) {
			w := newGrower(aggregate.GrowthOptions{})
			play(w)
			qt.Check(t, qt.HasLen(w.growing(t), 0), qt.Commentf("%+v", w.left(t)))
		})
	}
}

func TestLoadingIsLonely(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	for range 30 {
		w.alloc("weight")
	}
	weight := w.left(t)["weight"]
	qt.Check(t, qt.IsTrue(weight.Trend.Growing))
	qt.Check(t, qt.IsTrue(weight.Trend.Lonely))
}

// TestTheEndOfTheProcessFreesNothing: what ends with its device or its process was never
// freed, and neither was what is freed when all work is over.
func TestTheEndOfTheProcessFreesNothing(t *testing.T) {
	for name, end := range map[string]func(w *grower, leaked []uint64){
		"device":   func(w *grower, _ []uint64) { w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1}) },
		"process":  func(w *grower, _ []uint64) { w.apply(event.Event{Kind: event.ProcessExit}) },
		"exec":     func(w *grower, _ []uint64) { w.apply(event.Event{Kind: event.ProcessStart}) },
		"teardown": func(w *grower, leaked []uint64) { w.free(leaked...); w.apply(event.Event{Kind: event.ProcessExit}) },
		"implied frees": func(w *grower, leaked []uint64) {
			for _, id := range leaked {
				w.apply(event.Event{Kind: event.Free, BufferID: id, Reason: event.ReasonDeviceClose})
			}
			w.apply(event.Event{Kind: event.DeviceClose, Allocator: 1})
			w.apply(event.Event{Kind: event.ProcessExit})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGrower(aggregate.GrowthOptions{})
			var leaked []uint64
			for range 40 {
				w.step()
				leaked = append(leaked, w.alloc("leak"))
			}
			end(w, leaked)
			leak := w.left(t)["leak"]
			qt.Check(t, qt.Equals(leak.Trend, aggregate.Trend{Intervals: 8, Rises: 8, Last: 8, Growing: true}))
			qt.Check(t, qt.Equals(leak.Count+leak.Torn.Count, 40))
			qt.Check(t, qt.Equals(leak.Count == 0, name == "teardown"))
			qt.Check(t, qt.IsTrue(leak.OldestNs > 40*60), qt.Commentf("%d ns", leak.OldestNs))
		})
	}
}

// TestTheFreedIsNotLeft: what is freed while work goes on is not left, whatever grew
// until then.
func TestTheFreedIsNotLeft(t *testing.T) {
	w := newGrower(aggregate.GrowthOptions{})
	var held []uint64
	for range 40 {
		w.step()
		held = append(held, w.alloc("held"))
	}
	w.free(held...)
	w.step()
	w.apply(event.Event{Kind: event.ProcessExit})
	_, there := w.left(t)["held"]
	qt.Check(t, qt.IsFalse(there))
}
