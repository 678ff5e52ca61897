// Package visualizer writes reports for TT-NN Visualizer: a folder with a database of its schema
// 3.5.
//
// A report has the live buffers after each operation, so that its size is the number of operations
// times that of live buffers. A Plan of the same events, which are played twice, finds the
// operations that fit. The report is written while the events are played; in memory are the live
// buffers of the operations that may continue, one for each thread.
// It is not part of ttmem's Go library: it changes without notice.
package visualizer

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"ttmem/aggregate"
	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// schemaVersion is the version of TT-NN's reports.
const schemaVersion = "3.5"

//go:embed schema.sql
var schema string

// Options configure a report.
type Options struct {
	// Name is the report's name.
	Name string
	// Wall returns the wall clock at the time of an event; zero if that is not known.
	Wall func(ns uint64) time.Time
	// Source returns the text of a Python file that was executed at a time; ok is false if it
	// cannot be read or has changed since. nil: there are no sources.
	Source func(path string, at time.Time) (text string, ok bool)
}

// A Report is a report that is being written.
type Report struct {
	Options
	Window
	// Scattered is how many rows of buffers it lacks, because their addresses differ from core
	// to core or are not known.
	Scattered int

	create func(name string) (*os.File, error)
	db     *database
	plan   *Plan
	ops    splitter
	state  *aggregate.State
	began  uint64
	// contained are the processes in containers, whose files are others.
	contained map[int]bool
	releases  []string
	sources   map[string]source
	read      int
	tensors   tensors
}

// report is what a report has of an operation.
type report struct {
	// beganNs is the time of its first event, and atNs the one at which the buffers were read.
	beganNs, atNs uint64

	nodes []node
	// freed are nodes of buffers that were freed since its latest event.
	freed   []node
	statics map[uint64][]memory.Static
	buffers []memory.Buffer
	errors  []failure
}

// A failure is a row of errors.
type failure struct{ kind, message, time string }

// New begins a report, whose files Close creates with create.
func New(create func(name string) (*os.File, error), plan *Plan, w Window, o Options) (*Report, error) {
	db, err := newDatabase()
	if err != nil {
		return nil, err
	}
	r := &Report{Options: o, Window: w, create: create, db: db, plan: plan, contained: make(map[int]bool), sources: make(map[string]source)}
	r.ops.ended = r.write
	return r, nil
}

// Event adds an event that was applied to the state. The events must be complete.
func (r *Report) Event(e *event.Event, s *aggregate.State) {
	if r.state == nil {
		r.state, r.began = s, e.TimeNs
	}
	switch e.Kind {
	case event.Checkpoint:
		for _, p := range s.Totals().Processes {
			r.start(p.PID, p.Container, p.Release)
		}
	case event.ProcessStart:
		r.start(e.PID, e.Started().Container, e.Started().Release)
	case event.Free:
		if op := r.ops.in(thread{e.PID, e.TID}); op != nil && r.has(op) && len(op.ran) == 0 && len(op.freed) < maxParts {
			op.freed = append(op.freed, bufferNode("buffer_deallocate", e))
		}
	}
	r.followTensors(e, s)
	if op := r.ops.of(e); op != nil && r.has(op) {
		r.add(op, e)
	}
}

// start notes a process.
func (r *Report) start(pid int, container, release string) {
	r.contained[pid] = container != ""
	if release != "" && !slices.Contains(r.releases, release) {
		r.releases = append(r.releases, release)
	}
}

// has reports whether the operation is in the window.
func (r *Report) has(op *operation) bool { return r.From <= op.id && op.id <= r.To }

// add adds an event to its operation.
func (r *Report) add(op *operation, e *event.Event) {
	op.beganNs = cmp.Or(op.beganNs, e.TimeNs)
	op.nodes, op.freed = append(op.nodes, op.freed...), nil
	if !isCompiled(e) {
		op.buffers, op.atNs = r.state.Buffers(), e.TimeNs
	}
	switch e.Kind {
	case event.Alloc:
		op.nodes = append(op.nodes, bufferNode("buffer_allocate", e))
		r.tensors.born(op, e)
	case event.AllocFailed, event.OperationFailed:
		op.errors = append(op.errors, failure{cmp.Or(e.Reason.String(), "allocation_failed"), lines(e.Message), r.timestamp(e.TimeNs)})
	default:
		op.place(e, r.state)
	}
}

// timestamp returns the wall clock as text; "" if it is not known.
func (r *Report) timestamp(ns uint64) string {
	if at := r.Wall(ns); !at.IsZero() {
		return at.Format(time.RFC3339Nano)
	}
	return ""
}

// place reads the circular buffers of a program, which are known when it is compiled, and when it
// comes from the program cache.
func (op *operation) place(e *event.Event, s *aggregate.State) {
	if op.statics == nil {
		op.statics = make(map[uint64][]memory.Static)
	}
	chips := e.Devices
	list := slices.DeleteFunc(op.statics[e.ProgramID], func(one memory.Static) bool { return slices.Contains(chips, one.Device) })
	for _, id := range chips {
		list = append(list, s.StaticsOf(e.PID, e.ProgramID, id)...)
	}
	op.statics[e.ProgramID] = list
}

// write writes an operation.
func (r *Report) write(op *operation) {
	if !r.has(op) {
		return
	}
	r.db.insert("operations", op.id, op.name, 0.0, 0)
	r.db.insert("operation_arguments", op.id, "process", fmt.Sprintf("%s (%d)", event.Printable(op.comm), op.pid), 0)
	// as --at takes it
	r.db.insert("operation_arguments", op.id, "time", time.Duration(op.atNs-r.began).String(), 0)
	trace, file := r.trace(op)
	r.db.insert("stack_traces", op.id, trace, file, 0)
	r.db.insert("captured_graph", op.id, op.graph(), 0)
	for _, e := range op.errors {
		r.db.insert("errors", op.id, op.name, e.kind, e.message, trace, e.time, 0)
	}
	for i := range op.buffers {
		r.writeBuffer(op.id, &op.buffers[i])
	}
}

// writeBuffer writes a buffer that was live after an operation.
func (r *Report) writeBuffer(op int, b *memory.Buffer) {
	if b.Scattered() {
		r.Scattered += len(b.Devices)
		return
	}
	for _, chip := range b.Devices {
		r.db.insert("buffers", op, chip, b.Address, b.BytesPerBank, int(b.Region), int(b.Layout), 0)
		if r.Chunks && b.Region == event.L1 {
			r.writeChunks(op, chip, b)
		}
	}
}

// writeChunks writes the cores of a chip on which a buffer has pages, if they are known: those of a
// buffer on single cores, and all cores for one that has pages in all banks. The core of a bank is
// not known, so that the cores are numbered in place of the banks.
func (r *Report) writeChunks(op, chip int, b *memory.Buffer) {
	on := b.Cores()
	g, known := r.grid(chip)
	pages := max(b.PageSizeBytes, 1)
	if known && !b.PerCore && int(b.DataBanks) == g.x*g.y && b.SizeBytes/pages >= uint64(b.DataBanks) {
		on = []event.CoreRange{{X1: uint16(g.x - 1), Y1: uint16(g.y - 1)}}
	}
	for _, c := range on {
		for y := int(c.Y0); y <= int(c.Y1); y++ {
			for x := int(c.X0); x <= int(c.X1); x++ {
				r.db.insert("buffer_chunks", op, chip, b.Address, y*g.x+x, x, y,
					b.Address, b.BytesPerBank, b.PageSizeBytes, b.BytesPerBank/pages, int(b.Region), 0)
			}
		}
	}
}

// Sources returns how many source files the report has.
func (r *Report) Sources() (count int) {
	for _, s := range r.sources {
		if s.id > 0 {
			count++
		}
	}
	return count
}

// Close writes the rest, and returns the first error of the report.
func (r *Report) Close() error {
	r.ops.endAll()
	if r.state != nil {
		r.writeTensors()
		r.writeDevices()
		r.writeMetadata()
	}
	config, err := event.MarshalJSON(map[string]string{"report_name": r.Name})
	return errors.Join(r.file("db.sqlite", r.db.writeTo), err, r.file("config.json", func(w io.Writer) error {
		_, err := w.Write(config)
		return err
	}))
}

// file creates a file with what write writes.
func (r *Report) file(name string, write func(io.Writer) error) error {
	f, err := r.create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

func (r *Report) writeMetadata() {
	values := map[string]string{
		"schema_version": schemaVersion, "rank": "0", "world_size": "1", "generator": "ttmem",
		"total_duration_ns": strconv.FormatUint(r.state.Now()-r.began, 10),
		"operations":        fmt.Sprintf("%d..%d of %d", r.From, r.To, r.plan.Operations()),
	}
	if began := r.Wall(r.began); !began.IsZero() {
		values["capture_timestamp_ns"] = strconv.FormatInt(began.UnixNano(), 10)
	}
	if len(r.releases) == 1 {
		values["version"] = event.Printable(r.releases[0])
	}
	for key, value := range values {
		r.db.insert("report_metadata", key, value)
	}
}
