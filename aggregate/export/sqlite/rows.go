package sqlite

import (
	"cmp"
	"slices"
	"time"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// lost is the reason of a death whose event was lost.
const lost = "lost"

// add adds the rows of an event.
func (w *Writer) add(e *event.Event) {
	w.events++
	var p *process
	switch e.Kind {
	case event.ProcessStart:
		start := e.Started()
		if p = w.running[e.PID]; e.Reread && p != nil {
			w.exec(`UPDATE processes SET command = ? WHERE process = ?`, text(start.Command), p.id)
			break
		}
		p = w.addProcess(e.PID, e.Comm, e.TimeNs, memory.About{
			Command: start.Command, Library: start.Library, Release: start.Release, UID: e.UID,
			Container: start.Container, Pod: start.Pod, ContainerPID: start.ContainerPID, AttachedLate: start.AttachedLate,
		})
	case event.ProcessExit, event.Free, event.CBFree, event.KernelUnload, event.DeviceClose, event.Reread, event.Lost, event.Mark, event.Owner, event.HostMemory:
		p = w.running[e.PID] // none begins by its end
	default:
		p = w.process(e.PID, e.Comm, e.TimeNs)
	}
	stack, set := w.stack(e.Stack), w.set(e.Devices)
	var buffer, program, trace any
	if e.Kind >= event.TraceBegin && e.Kind <= event.TraceRelease {
		trace = int64(e.ProgramID)
	}
	switch e.Kind {
	case event.Alloc:
		if b := w.state.Buffer(e.PID, e.BufferID); b != nil {
			buffer = w.alloc(p, b, w.events)
		}
	case event.Free:
		if p != nil && p.buffers[e.BufferID] != 0 {
			buffer = p.buffers[e.BufferID]
			w.end(p, e.BufferID, w.events, e.TimeNs, e.Reason.String())
		}
	case event.Owner:
		if p != nil && p.buffers[e.BufferID] != 0 {
			buffer = p.buffers[e.BufferID]
			if e.Cause != "" { // else nobody holds it any more
				w.exec(`UPDATE buffers SET owner = ?, tensor = ?, class = COALESCE(class, ?) WHERE buffer = ?`,
					text(e.Cause), text(e.Message), text(name.ClassByOwner(e.Cause, e.Message).String()), buffer)
			}
		}
	case event.ProcessExit:
		if p != nil {
			w.endProcess(p, e)
		}
	case event.CBAlloc, event.CBFree, event.KernelLoad, event.KernelUnload, event.ProgramRun:
		if p != nil {
			g := w.program(p, e.ProgramID, e.TimeNs, stack)
			program = g.id
			w.change(g, e, stack)
		}
	case event.TraceReplay:
		runs, _ := w.state.TraceRuns(e.PID, e.Devices, e.ProgramID)
		for _, r := range runs {
			g := w.program(p, r.ProgramID, e.TimeNs, w.stack(r.Stack))
			w.exec(`UPDATE programs SET runs = runs + ?, replays = replays + ?, last_run_ns = ? WHERE program = ?`,
				int64(r.Count), int64(r.Count), w.time(e.TimeNs), g.id)
		}
	case event.AllocFailed, event.OperationFailed:
		region := e.Region.String()
		if e.Kind == event.OperationFailed {
			region = ""
		}
		if p != nil && e.ProgramID != 0 {
			program = w.program(p, e.ProgramID, e.TimeNs, stack).id
		}
		w.failures[w.state.Number()] = w.events
		w.exec(`INSERT INTO failures VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, ?, ?, ?)`,
			w.events, w.time(e.TimeNs), p.key(), set, region, text(e.Reason.String()), number(e.SizeBytes),
			number(e.BytesPerBank), number(e.Banks), program, stack, text(e.Message))
	case event.Mark:
		w.exec(`INSERT INTO marks VALUES (?, ?, ?, ?, ?)`, w.events, w.time(e.TimeNs), event.Printable(e.Cause), e.UID, p.key())
	case event.Lost:
		w.exec(`INSERT INTO losses VALUES (?, ?, ?, ?, ?)`, w.events, w.time(e.TimeNs), p.key(), event.Printable(e.Cause), int64(e.Count))
	}
	w.exec(`INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		w.events, w.time(e.TimeNs), e.Kind.String(), p.key(), number(e.TID), buffer, program, set, stack, trace)
}

func (w *Writer) endProcess(p *process, e *event.Event) {
	var status any
	if e.ExitStatus != event.UnknownStatus {
		status = e.ExitStatus
	}
	w.exec(`UPDATE processes SET exit_ns = ?, exit_status = ? WHERE process = ?`, w.time(e.TimeNs), status, p.id)
	delete(w.running, e.PID)
}

// alloc adds a live buffer, and returns its row. event is nil if the buffer is older than the
// first event.
func (w *Writer) alloc(p *process, b *memory.Buffer, event any) int64 {
	if p.buffers[b.BufferID] != 0 {
		w.end(p, b.BufferID, nil, b.SinceNs, lost)
	}
	w.buffers++
	p.buffers[b.BufferID] = w.buffers
	w.exec(`INSERT INTO buffers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL, NULL, ?, ?, ?)`,
		w.buffers, p.id, int64(b.BufferID), w.set(b.Devices), b.Region.String(), b.Layout.String(), int64(b.Address),
		int64(b.SizeBytes), int64(b.PageSizeBytes), int64(b.BytesPerBank), b.DataBanks, int64(b.AllocatedBytes()),
		coresText(b.Cores()), b.BeforeAttach, w.stack(b.Stack), event, w.time(b.SinceNs),
		text(b.Path), text(b.Tensor), text(w.classes.Of(b.Stack, b.Region, b.Path, b.Tensor).String()))
	return w.buffers
}

// end ends a live buffer. event is nil if its event was lost.
func (w *Writer) end(p *process, buffer uint64, event any, now uint64, reason string) {
	w.exec(`UPDATE buffers SET death_event = ?, death_ns = ?, death_reason = ? WHERE buffer = ?`,
		event, w.time(now), reason, p.buffers[buffer])
	delete(p.buffers, buffer)
}

// change changes a program by an event.
func (w *Writer) change(g *program, e *event.Event, stack any) {
	switch e.Kind {
	case event.CBAlloc:
		cores := 0
		for _, c := range e.Cores {
			cores += c.Cores()
		}
		key := staticKey{e.Address, e.SizeBytes, "[]", e.StaticKind, e.Global}
		if e.Cores != nil {
			key.cores = coresText(e.Cores).(string)
		}
		for _, chip := range e.Devices {
			w.addStatic(g, chip, key, cores, stack, e.TimeNs)
		}
	case event.CBFree:
		for chip, list := range g.statics {
			if len(e.Devices) > 0 && !slices.Contains(e.Devices, chip) {
				continue
			}
			g.statics[chip] = slices.DeleteFunc(list, func(one static) bool {
				// scratchpads are freed with the dataflow buffers
				ends := e.StaticKind == event.NotStatic || e.StaticKind == one.kind ||
					e.StaticKind == event.DataflowBuffer && one.kind == event.Scratchpad
				if ends {
					w.exec(`UPDATE circular_buffers SET death_ns = ? WHERE circular_buffer = ?`, w.time(e.TimeNs), one.id)
				}
				return ends
			})
		}
	case event.KernelLoad:
		w.exec(`UPDATE programs SET kernel_dram_bytes = ?, kernel_l1_bytes_per_core = ?, kernel_kind = ? WHERE program = ?`,
			int64(e.SizeBytes), int64(e.BytesPerBank), cmp.Or(e.KernelKind.String(), "worker"), g.id)
	case event.ProgramRun:
		w.exec(`UPDATE programs SET runs = runs + 1, last_run_ns = ? WHERE program = ?`, w.time(e.TimeNs), g.id)
	}
}

func (w *Writer) addStatic(g *program, chip int, key staticKey, cores int, stack any, since uint64) {
	if slices.ContainsFunc(g.statics[chip], func(one static) bool { return one.staticKey == key }) {
		return // the program was assigned the same place again
	}
	w.statics++
	g.statics[chip] = append(g.statics[chip], static{key, w.statics})
	w.exec(`INSERT INTO circular_buffers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
		w.statics, g.id, chip, key.kind.String(), int64(key.address), int64(key.bytes), key.cores, cores, key.global, stack, w.time(since))
}

// addExisting adds what is live before the first event.
func (w *Writer) addExisting() {
	of := w.state.Snapshot()
	for i := range of.Processes {
		if p := &of.Processes[i]; p.Exit == nil {
			w.addProcess(p.PID, p.Comm, p.SinceNs, p.About)
		}
	}
	for _, b := range w.state.Buffers() {
		w.alloc(w.process(b.PID, b.Comm, b.SinceNs), &b, nil)
	}
	for _, chip := range of.DeviceIDs() {
		for _, c := range w.state.Statics(chip) {
			cores := 0
			for _, r := range c.Cores {
				cores += r.Cores()
			}
			stack := w.stack(c.Stack)
			g := w.program(w.process(c.PID, "", c.SinceNs), c.ProgramID, c.SinceNs, stack)
			key := staticKey{c.Address, c.BytesPerCore, coresText(c.Cores).(string), c.Kind, c.Global}
			w.addStatic(g, chip, key, cores, stack, c.SinceNs)
		}
	}
}

// addResult adds what is known at the end.
func (w *Writer) addResult() {
	of := w.state.Snapshot()
	for i := range of.Devices {
		w.addChip(&of.Devices[i])
	}
	for i := range of.Failures {
		if f := &of.Failures[i]; f.Evidence != nil && f.Evidence.Known() && !f.Evidence.PerCore {
			w.exec(`UPDATE failures SET free_bytes_per_bank = ?, largest_free_bytes_per_bank = ? WHERE event = ?`,
				int64(f.Evidence.FreeBytesPerBank), int64(f.Evidence.LargestFreeBytesPerBank), w.failures[f.Number])
		}
	}
	var utc any
	if ns := w.wall(w.first); ns > 0 {
		utc = time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000000000Z")
	}
	w.exec(`INSERT INTO recording VALUES (?, ?, ?, ?)`, schemaVersion, int64(w.first), utc, w.time(w.state.Now()))
}

func (w *Writer) addChip(d *memory.Device) {
	core := &d.L1PerCore
	w.exec(`INSERT INTO chips VALUES (?, ?, ?, ?, ?, ?)`, d.ID, text(d.Board), text(d.Arch),
		number(core.CapacityBytes), int64(core.Peak.Bytes()), w.peakTime(core.Peak.TimeNs))
	for region := range event.Region(event.BankedRegions) {
		r := d.Regions.Banked(region)
		if r.CapacityBytes == 0 && r.PeakBytes == 0 {
			continue
		}
		w.exec(`INSERT INTO regions VALUES (?, ?, ?, ?, ?, ?, ?)`, d.ID, region.String(), number(r.Banks),
			number(r.CapacityBytesPerBank), number(r.CapacityBytes), number(r.PeakBytes), w.peakTime(r.PeakTimeNs))
	}
}

// peakTime returns the time of a peak; nil if there was none.
func (w *Writer) peakTime(ns uint64) any {
	if ns == 0 {
		return nil
	}
	return w.time(ns)
}
