package tracer

import (
	"context"
	"math"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/backlog"
	"ttmem/tracer/internal/books"
	"ttmem/tracer/internal/libraries"
	"ttmem/tracer/internal/order"
	"ttmem/tracer/internal/owners"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/kernel"
	"ttmem/tracer/quota"
)

// decoder is the event loop: it turns the kernel's records, and what others discovered and read, into events.
type decoder struct {
	processes map[int]*process // by id
	latest    *process         // of the latest record; nil: not known
	// recovering are the processes that lost events and whose figures are not right again, throwing those
	// with exceptions that may not have left the library, and losing those with losses to report.
	recovering, throwing, losing map[*process]bool
	past                         []int // processes that mapped a library and have ended, oldest first

	kernel    kernelSide
	libraries *libraries.Set
	spaces    *stack.Spaces // nil: no stacks are taken
	// inbox has all that other goroutines found, and reads reads programs and command lines.
	inbox  *inbox
	reads  *reads
	boards host.Boards
	// reread begins to read a process's memory again, and returns what stops that.
	reread func(*process) context.CancelCauseFunc
	// locate looks for the library that a process maps: see find.Finder.Locate.
	locate  func(pid, user int)
	closing context.Context // done when tracing ends
	Options

	event event.Event // of the record that is decoded
	// queue has the events in the order in which they arrived, and renamed the names of their threads that
	// were read since.
	queue   order.Queue
	renamed map[thread]readName
	// unattributed are the losses of no known process, by cause.
	unattributed map[string]lossCount
	// kernelLosses were taken from the kernel side, and are not counted yet.
	kernelLosses []kernelLoss
	backlog      backlog.Backlog // what the events of each user take while this loop is late
	// newest is the time of the newest record, and all records up to known were decoded, as were all at drainedNs.
	newest, known, drainedNs uint64
	// show are the options for call stacks.
	show stack.Options
	// stacks is what the stacks of all processes share. stackRecords counts the records of stacks.
	stacks       stack.Shared
	stackRecords int
	// taken is the number of buffers of late attaches, and of owners, that were reported since the last tick.
	taken int
	// room is what the processes of each user may have, and names what they may have of names of threads.
	room, names *quota.Quota
	// waiting are the processes whose memory from before the attach is to be read. late and rereading count
	// such reads that run, and those after a loss.
	waiting         []*process
	late, rereading *quota.Quota
	searches        *owners.Searches
	// countedNs, namedNs and sweptNs are when losses were counted, command lines read again, and processes checked.
	countedNs, namedNs, sweptNs uint64
	peaksNs                     uint64       // when processes were checked for new peaks
	asked                       owners.Asked // for searches at these
	// resident reads the memory of a process on the host; nil: it is not read. residentNs is when it is
	// read next.
	resident     func(pid int) (now, most uint64, ok bool)
	residentNs   uint64
	objectsEnded chan struct{} // gets something when a process ends that may have objects in the kernel side
	// stackSeen gets the stacks that on_stack sends; nil outside tests.
	stackSeen func(*bpf.KernelHeader, *event.Stack)
}

// kernelSide is what the event loop asks the kernel side.
type kernelSide interface {
	Runs(kernel.Program) bool
	TakeLosses(func(bpf.KernelLossKey, bpf.KernelLoss)) error
	ForgetPrograms(pid int) error
	ChangeProcess(p kernel.Program, flags, space uint32) bool
}

func newDecoder(ctx context.Context, k kernelSide, libraries *libraries.Set, spaces *stack.Spaces, readers *host.Readers, o *Options) *decoder {
	d := &decoder{
		processes: make(map[int]*process), recovering: make(map[*process]bool), throwing: make(map[*process]bool), losing: make(map[*process]bool), renamed: make(map[thread]readName), asked: make(owners.Asked),
		room: quota.New(quota.Allocations, quota.AllAllocations).LimitUsers(quota.TracedByUsers), kernel: k, libraries: libraries, spaces: spaces, inbox: new(inbox), closing: ctx, Options: *o,
		names: quota.New(maxNamesOfUser, math.MaxInt), late: quota.New(maxLate, math.MaxInt), rereading: quota.New(maxRereading, math.MaxInt), show: stack.Options{FullNames: o.FullNames, AllFrames: o.AllFrames},
		unattributed: make(map[string]lossCount), objectsEnded: make(chan struct{}, 1),
	}
	d.reads = newReads(ctx, readers, d.inbox)
	d.searches = owners.New(owners.Options{
		Closing: ctx, Readers: readers, Runs: k.Runs, Warn: o.warn, Emit: d.emit,
		Post: func(r *owners.Result) {
			d.inbox.add(result{atNs: r.EndedNs, report: func(d *decoder) bool { return d.takeOwners(r) }})
		},
	})
	d.reread = d.readAgain
	return d
}

func (d *decoder) emit(e event.Event) { d.queue.Push(&e) }

// decode turns a record into zero or more events.
func (d *decoder) decode(raw []byte) {
	h := bpf.As[bpf.KernelHeader](raw)
	if h == nil {
		d.unknown(nil, "record too short")
		return
	}
	d.event = event.Event{TimeNs: h.TimeNs, PID: int(h.Tgid), TID: int(h.Tid)}
	e := &d.event
	d.newest = max(d.newest, h.TimeNs)
	d.turn(e.PID)
	program := kernel.Program{PID: e.PID, ExecID: h.ExecId}
	var p *process
	known := true
	switch h.Kind {
	case bpf.RecordExec:
		d.exec(program, e.TimeNs)
		return
	case bpf.RecordExit:
		if r := bpf.As[bpf.KernelProcessRecord](raw); r != nil {
			d.exit(program, e.TimeNs, int(r.ExitCode))
		} else {
			d.unknown(nil, "record not understood")
		}
		return
	case bpf.RecordUnloaded:
		d.spaces.Changed(e.PID)
		return
	case bpf.RecordFree, bpf.RecordCaught, bpf.RecordClear, bpf.RecordBanks, bpf.RecordBinariesLoaded:
		if p = d.follow(program, e.TimeNs, false); p == nil {
			return // a forked child frees what it inherited
		}
	default:
		if p = d.follow(program, e.TimeNs, true); p == nil {
			d.unknown(d.processes[e.PID], "record of a program that has ended")
			return
		}
	}
	p.unlisted = false
	switch h.Kind {
	case bpf.RecordNativeStack:
		known = p.stacks.AddNativeRecord(raw, e.PID, d.spaces)
		d.boundStacks()
	case bpf.RecordPythonStack:
		known = p.stacks.AddPythonRecord(raw)
		d.boundStacks()
	case bpf.RecordCode:
		known = p.stacks.AddCodeRecord(raw)
		d.boundStacks()
	case bpf.RecordMark:
		known = d.mark(p, *e, raw)
	case bpf.RecordStack:
		if d.stackSeen != nil {
			d.stackSeen(h, p.stacks.Stack(h.Stack))
		}
	default:
		if d.backlog.Skips(p.Sharer, books.AreNeeded(h.Kind)) {
			d.lose(p, madeLate, 1, e.TimeNs)
			return
		}
		l := d.libraryOf(p, h.Library)
		d.begin(p, e.TimeNs)
		if known = p.Decode(h.Kind, e, l, raw); p.Throwing() {
			d.throwing[p] = true
		}
	}
	if !known {
		d.unknown(p, "record not understood")
	}
}

// mark reports a moment that a process named. It returns false if the name was not read.
func (d *decoder) mark(p *process, e event.Event, raw []byte) bool {
	r := bpf.Begun[bpf.KernelMarkRecord](raw, unsafe.Offsetof(bpf.KernelMarkRecord{}.Name))
	if r == nil {
		return false
	}
	name := strings.ToValidUTF8(unix.ByteSliceToString(r.Name[:]), "\ufffd")
	if name == "" {
		return false
	}
	d.readIdentity(p, e.TimeNs)
	e.Kind, e.Cause, e.UID = event.Mark, name, p.start.UID
	d.emit(e)
	d.wantAtMark(p, e.UID)
	return true
}
