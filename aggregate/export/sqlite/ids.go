package sqlite

import (
	"database/sql"
	"encoding/json"
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// ids are the keys of rows that later rows name.
type ids struct {
	classes    name.Classes
	statements map[string]*sql.Stmt
	events     int64
	buffers    int64
	statics    int64
	programs   int64
	processes  int64
	// running are the running processes by PID, and the rest by what they have.
	running  map[int]*process
	stacks   map[uint64]int64
	chipSets map[string]int64
	// failures are the events of failed allocations, by the number that the State gives them
	failures map[uint64]int64
	lastSet  chipSet
}

// A process has the rows of what is live.
type process struct {
	id       int64
	buffers  map[uint64]int64
	programs map[uint64]*program
}

// A program has its live circular buffers by chip.
type program struct {
	id      int64
	statics map[int][]static
}

// A static is a circular buffer. A program that gets one again keeps it.
type static struct {
	staticKey
	id int64
}

type staticKey struct {
	address, bytes uint64
	cores          string
	kind           event.StaticKind
	global         bool
}

type chipSet struct {
	chips []int
	id    any
}

func newIDs() ids {
	return ids{
		statements: make(map[string]*sql.Stmt), running: make(map[int]*process), stacks: make(map[uint64]int64),
		chipSets: make(map[string]int64), failures: make(map[uint64]int64),
	}
}

// text returns a string of a traced program for a column: sqlite3 prints it as it is.
func text(s string) any {
	if s == "" {
		return nil
	}
	return event.Printable(s)
}

// number returns a number of which 0 is not known.
func number[T int | int64 | uint32 | uint64](n T) any {
	if n == 0 {
		return nil
	}
	return int64(n)
}

// time returns a time of a column.
func (w *Writer) time(ns uint64) int64 { return int64(ns - w.first) }

// process returns the running process of an event; nil for PID 0.
func (w *Writer) process(pid int, comm string, since uint64) *process {
	if pid == 0 {
		return nil
	}
	p := w.running[pid]
	if p == nil {
		p = w.addProcess(pid, comm, since, memory.About{})
	}
	return p
}

func (w *Writer) addProcess(pid int, comm string, since uint64, about memory.About) *process {
	w.processes++
	p := &process{w.processes, make(map[uint64]int64), make(map[uint64]*program)}
	w.running[pid] = p
	w.exec(`INSERT INTO processes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)`,
		p.id, pid, text(comm), text(about.Command), about.UID, text(about.Library), text(about.Release),
		text(about.Container), text(about.Pod), number(about.ContainerPID), about.AttachedLate, w.time(since))
	return p
}

// key returns the process's row; nil for none.
func (p *process) key() any {
	if p == nil {
		return nil
	}
	return p.id
}

// program returns a program of a process, which is there from this event on.
func (w *Writer) program(p *process, id uint64, since uint64, stack any) *program {
	g := p.programs[id]
	if g == nil {
		w.programs++
		g = &program{w.programs, make(map[int][]static)}
		p.programs[id] = g
		w.exec(`INSERT INTO programs VALUES (?, ?, ?, ?, ?, 0, NULL, NULL, NULL, NULL, 0)`, g.id, p.id, int64(id), stack, w.time(since))
	}
	return g
}

// set returns the row of a set of chips; nil for none.
func (w *Writer) set(chips []int) any {
	if len(chips) == 0 {
		return nil
	}
	if slices.Equal(chips, w.lastSet.chips) { // most have the same as the one before
		return w.lastSet.id
	}
	key := memory.DevicesKey(chips)
	id, ok := w.chipSets[key]
	if !ok {
		id = int64(len(w.chipSets) + 1)
		w.chipSets[key] = id
		for _, chip := range chips {
			w.exec(`INSERT OR IGNORE INTO chip_sets VALUES (?, ?)`, id, chip)
		}
	}
	w.lastSet = chipSet{slices.Clone(chips), id}
	return id
}

// stack returns the row of a call stack; nil for none.
func (w *Writer) stack(s *event.Stack) any {
	if s == nil {
		return nil
	}
	id, ok := w.stacks[s.ID]
	if ok {
		return id
	}
	id = int64(len(w.stacks) + 1)
	w.stacks[s.ID] = id
	frames := s.Frames()
	n := name.Of(frames)
	var retained any
	if c := w.classes.Of(s, event.DRAM, "", ""); c.Retained() {
		retained = c.Name
	}
	w.exec(`INSERT INTO stacks VALUES (?, ?, ?, ?, ?)`,
		id, text(n.Text(" · ")), text(n.Op), text(name.DefaultComponent(frames)), retained)
	for depth := range frames {
		f := &frames[depth]
		w.exec(`INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
			id, depth, f.Kind, text(f.Name), text(f.File), number(f.Line), text(f.Module), number(f.Address), f.Inlined)
	}
	return id
}

// coresText returns cores as JSON; nil for unknown ones.
func coresText(cores []event.CoreRange) any {
	if cores == nil {
		return nil
	}
	list := make([][4]uint16, len(cores))
	for i, c := range cores {
		list[i] = [4]uint16{c.X0, c.Y0, c.X1, c.Y1}
	}
	b, _ := json.Marshal(list) // numbers have no error
	return string(b)
}
