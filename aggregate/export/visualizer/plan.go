package visualizer

import (
	"math"

	"ttmem/aggregate"
	"ttmem/tracer/event"
)

const (
	// maxRows is the number of rows of a report for which no operations are chosen. The pages
	// load them all: much larger reports take a browser minutes, or all its memory.
	maxRows = 1_000_000
	// operationRows are the rows of an operation besides buffers and the nodes of its graph.
	operationRows = 10
)

// A Plan is what a report of a recording would have. It takes the events first, because a report of
// all operations may be too large, and because the grid of cores is known only at the end. It
// costs 8 bytes for each operation.
type Plan struct {
	splitter
	// Stacks is true if an operation has a call stack.
	Stacks bool
	// buffers are the rows of buffers after each operation, with the nodes of its graph, and chunks
	// those of their chunks.
	buffers, chunks []uint32
	// live are the rows of live buffers, and liveChunks those of their chunks.
	live, liveChunks int64
	// grids are the largest coordinates of cores that programs used on each chip.
	grids map[int]grid
}

// A grid is a number of columns and rows of cores.
type grid struct{ x, y int }

// Event counts an event that was applied to the state.
func (p *Plan) Event(e *event.Event, s *aggregate.State) {
	switch e.Kind {
	case event.Checkpoint:
		p.live, p.liveChunks = 0, 0
		for _, b := range s.Buffers() {
			p.change(b.Region, len(b.Devices), uint32(b.DataBanks))
		}
		for _, id := range s.Totals().DeviceIDs() {
			for _, static := range s.Statics(id) {
				p.seen([]int{id}, static.Cores)
			}
		}
	case event.Alloc:
		p.change(e.Region, len(e.Devices), e.Banks)
	case event.Free:
		p.change(e.Region, -len(e.Devices), e.Banks)
	case event.CBAlloc, event.KernelLoad:
		p.seen(e.Devices, e.Cores)
	}
	if op := p.of(e); op != nil {
		p.Stacks = p.Stacks || e.Stack != nil
		if op.id > len(p.buffers) {
			p.buffers, p.chunks = append(p.buffers, 0), append(p.chunks, 0)
		}
		op.plan(e, s)
		p.buffers[op.id-1], p.chunks[op.id-1] = rows(p.live+int64(op.planned)), rows(p.liveChunks)
	}
}

// plan counts the nodes of the graph: an allocation, or the circular buffers of a program.
func (op *operation) plan(e *event.Event, s *aggregate.State) {
	switch {
	case e.Kind == event.ProgramRun && len(e.Devices) > 0:
		op.planned += len(e.Devices) * len(s.StaticsOf(e.PID, e.ProgramID, e.Devices[0]))
	case e.Kind == event.CBAlloc && len(op.ran) > 0:
		op.planned += len(e.Devices)
	case e.Kind == event.Alloc:
		op.planned++
	}
}

// rows returns a number of rows that is at most too low.
func rows(n int64) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

// change counts a live buffer on some chips; a freed one if their number is negative.
func (p *Plan) change(region event.Region, chips int, banks uint32) {
	p.live += int64(chips)
	if region == event.L1 {
		p.liveChunks += int64(chips) * int64(banks)
	}
}

// seen notes the cores of programs.
func (p *Plan) seen(chips []int, cores []event.CoreRange) {
	if p.grids == nil {
		p.grids = make(map[int]grid)
	}
	for _, id := range chips {
		g := p.grids[id]
		for _, c := range cores {
			g.x, g.y = max(g.x, int(c.X1)+1), max(g.y, int(c.Y1)+1)
		}
		p.grids[id] = g
	}
}

// A Window is the operations that a report has.
type Window struct {
	// From and To are the first and the last one, which count from 1.
	From, To int
	// Chunks is true if the report says on which cores buffers are, for which there would be
	// ChunkRows rows.
	Chunks    bool
	ChunkRows int
}

// Operations is how many operations there are.
func (p *Plan) Operations() int { return p.count }

// Window returns the operations from one to another; 0 stands for the first and the last one. If
// both are 0, it is all of them or, if those have too many rows, as many of the last ones as a
// report should have.
func (p *Plan) Window(from, to int) Window {
	w := Window{From: max(from, 1), To: p.Operations()}
	if to > 0 {
		w.To = min(w.To, to)
	}
	rows := 0
	for id := w.To; id >= w.From; id-- {
		more := operationRows + int(p.buffers[id-1])
		if from == 0 && to == 0 && rows+more > maxRows && id < w.To {
			w.From = id + 1
			break
		}
		rows, w.ChunkRows = rows+more, w.ChunkRows+int(p.chunks[id-1])
	}
	w.Chunks = rows+w.ChunkRows <= maxRows
	return w
}
