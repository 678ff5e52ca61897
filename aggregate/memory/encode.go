package memory

import (
	"cmp"
	"slices"

	"ttmem/tracer/codec"
	"ttmem/tracer/event"
)

// An Encoding writes or reads the values of this package in a checkpoint.
type Encoding struct{ *codec.Codec }

// Mark writes or reads a mark.
func (c Encoding) Mark(m *Mark) {
	c.Uints(&m.TimeNs, &m.Number)
	c.Text(&m.Name)
	codec.Number(c.Codec, &m.UID)
}

// Failure writes or reads a failed allocation.
func (c Encoding) Failure(f *Failure) {
	c.Uints(&f.TimeNs, &f.SizeBytes, &f.BytesPerBank, &f.ProgramID, &f.Number)
	codec.Number(c.Codec, &f.PID)
	codec.Number(c.Codec, &f.TID)
	codec.Number(c.Codec, &f.UID)
	codec.Number(c.Codec, &f.Banks)
	for _, s := range []*string{&f.Comm, &f.Region, &f.Reason, &f.Message} {
		c.Text(s)
	}
	c.ids(&f.Devices)
	c.Stack(&f.Stack)
	codec.Maybe(c.Codec, &f.Evidence, c.evidence)
}

// ids writes or reads the ids of chips. They are never nil.
func (c Encoding) ids(ids *[]int) {
	codec.List(c.Codec, ids, func(id *int) { codec.Number(c.Codec, id) })
	if *ids == nil {
		*ids = []int{}
	}
}

func (c Encoding) evidence(e *Evidence) {
	c.Region(&e.Region, event.Region(event.BankedRegions))
	c.Capacity(&e.Capacity)
	c.Bool(&e.PerCore)
	c.Uints(&e.FreeBytesPerBank, &e.LargestFreeBytesPerBank, &e.From, &e.To, &e.Lowest)
	c.blame(&e.Live)
	c.blame(&e.Blocking)
	codec.List(c.Codec, &e.Holders, c.blame)
	codec.List(c.Codec, &e.Blockers, c.blame)
	codec.List(c.Codec, &e.Statics, c.static)
}

func (c Encoding) blame(b *Blame) {
	c.Uints(&b.BytesPerBank, &b.Count, &b.Address, &b.End)
	c.Bool(&b.BeforeAttach)
	c.Stack(&b.Stack)
}

func (c Encoding) static(s *Static) {
	c.Uints(&s.ProgramID, &s.Address, &s.BytesPerCore, &s.SinceNs)
	codec.Number(c.Codec, &s.PID)
	codec.Number(c.Codec, &s.Device)
	codec.Number(c.Codec, &s.Kind)
	c.Ranges(&s.Cores)
	c.Bool(&s.Global)
	c.Bool(&s.BeforeAttach)
	c.Stack(&s.Stack)
}

// Ranges writes or reads ranges of cores.
func (c Encoding) Ranges(l *[]event.CoreRange) {
	codec.List(c.Codec, l, func(r *event.CoreRange) {
		for _, n := range []*uint16{&r.X0, &r.Y0, &r.X1, &r.Y1} {
			codec.Number(c.Codec, n)
		}
	})
}

// Capacity writes or reads the capacity of a region.
func (c Encoding) Capacity(v *event.Capacity) {
	codec.Number(c.Codec, &v.Banks)
	c.Uints(&v.BytesPerBank, &v.Base)
}

// Exited writes or reads a process that ended.
func (c Encoding) Exited(p *Process) {
	codec.Number(c.Codec, &p.PID)
	c.Text(&p.Comm)
	c.About(&p.About)
	c.Uints(&p.BeforeAttachBuffers, &p.SinceNs)
	codec.List(c.Codec, &p.Devices, c.device)
	if p.Devices == nil {
		p.Devices = []Device{}
	}
	codec.Maybe(c.Codec, &p.Exit, func(x *Exit) {
		c.Uint(&x.TimeNs)
		codec.Maybe(c.Codec, &x.Status, func(status *int) { codec.Number(c.Codec, status) })
	})
	codec.List(c.Codec, &p.Unfreed, func(l *RegionTotal) {
		c.Text(&l.Region)
		c.Text(&l.Reason)
		c.Uints(&l.Buffers, &l.SizeBytes, &l.AllocatedBytes)
		codec.List(c.Codec, &l.Holders, c.Holder)
		// of equal size, the stacks come in order of their ids, which differ from run to run
		slices.SortStableFunc(l.Holders, func(a, b Holder) int {
			if a.Stack == nil || b.Stack == nil {
				return 0
			}
			return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Stack.ID, b.Stack.ID))
		})
	})
}

// About writes or reads what is known of a process.
func (c Encoding) About(a *About) {
	for _, s := range []*string{&a.Command, &a.Library, &a.Release, &a.Container, &a.Pod} {
		c.Text(s)
	}
	codec.Number(c.Codec, &a.UID)
	codec.Number(c.Codec, &a.ContainerPID)
	c.Bool(&a.AttachedLate)
}

// Holder writes or reads a holder of buffers.
func (c Encoding) Holder(h *Holder) {
	c.Uints(&h.Bytes, &h.Count, &h.Stacks)
	c.Bool(&h.BeforeAttach)
	c.Stack(&h.Stack)
}

// device writes or reads a chip of a process that ended: it has no processes.
func (c Encoding) device(d *Device) {
	codec.Number(c.Codec, &d.ID)
	c.Text(&d.Board)
	c.Text(&d.Arch)
	for i := range event.Region(event.BankedRegions) {
		r := d.Regions.Banked(i)
		codec.Number(c.Codec, &r.Banks)
		c.Uints(&r.Buffers, &r.SizeBytes, &r.BytesPerBank, &r.AllocatedBytes, &r.CapacityBytes,
			&r.CapacityBytesPerBank, &r.PeakBytes, &r.PeakTimeNs, &r.PeakCapacityBytes)
	}
	u := &d.Regions.CB
	c.Uints(&u.Programs, &u.Count, &u.GlobalCount, &u.MaxBytesPerCore, &u.Bytes, &u.SumBytes, &u.PeakBytesPerCore, &u.PeakTimeNs)
	k := &d.Regions.Kernel
	c.Uints(&k.Programs, &k.MaxBytesPerCore, &k.SumBytes, &k.PeakBytesPerCore, &k.DRAMBytes, &k.PeakDRAMBytes)
	l := &d.L1PerCore
	c.Uints(&l.CapacityBytes, &l.BufferBytes, &l.CBBytes, &l.FreeBytes, &l.Peak.TimeNs, &l.Peak.BufferBytes, &l.Peak.CBBytes)
}

// Amount writes or reads an amount.
func (c Encoding) Amount(a *Amount) { c.Uints(&a.Count, &a.Bytes) }

// Survivors writes or reads the survivors of a site whose allocator was closed.
func (c Encoding) Survivors(v *Survivors) {
	c.Text(&v.Comm)
	c.Text(&v.Command)
	c.Stack(&v.Stack)
	c.Region(&v.Region, event.Region(event.BankedRegions))
	codec.Number(c.Codec, &v.Layout)
	codec.List(c.Codec, &v.Devices, func(id *int) { codec.Number(c.Codec, id) })
	c.Amount(&v.Amount)
	c.Amount(&v.FreedAtTeardown)
	c.Uints(&v.AgeNs, &v.Allocated, &v.WorkedFromNs, &v.WorkedToNs)
	r := &v.Run
	for i := range r.Births {
		c.Uint(&r.Births[i])
	}
	c.Uints(&r.First, &r.Last, &r.Gap, &r.ProcessFirst, &r.ProcessLast, &r.FreedAt, &r.Outlived, &r.FreedMeanwhile, &r.Replaceable)
}
