package web

import (
	"slices"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// never is the last row of an allocation that is live at the end.
const never = ^uint32(0)

// lives has a row for each allocation: where it was allocated, where it ended, and what it was.
type lives struct {
	born, died, site, banks []uint32
	// perBank are the bytes in each of the banks, or on each core.
	perBank, address, id []uint64
	// owner is the number of who held it last, in owners; 0 if that is not known.
	owner      []uint32
	owners     []memory.Owner
	ownerIndex map[memory.Owner]uint32

	sites     []memory.Site
	siteIndex map[memory.SiteKey]uint32
	buffers   map[objectKey]uint32
	programs  map[objectKey][]static
}

// An objectKey is a buffer or a program of a process.
type objectKey struct {
	pid int
	id  uint64
}

// A static is a live circular buffer of a program, or its kernels.
type static struct {
	life    uint32
	region  event.Region
	kind    event.StaticKind
	devices []int
	cores   []event.CoreRange
}

func newLives() lives {
	return lives{
		owners: make([]memory.Owner, 1), ownerIndex: map[memory.Owner]uint32{{}: 0},
		siteIndex: make(map[memory.SiteKey]uint32), buffers: make(map[objectKey]uint32), programs: make(map[objectKey][]static),
	}
}

// add adds an allocation and returns its index.
func (l *lives) add(row uint32, site memory.Site, perBank uint64, banks uint32, address, id uint64) uint32 {
	l.born, l.died, l.site = append(l.born, row), append(l.died, never), append(l.site, l.siteOf(site))
	l.perBank, l.banks = append(l.perBank, perBank), append(l.banks, banks)
	l.address, l.id, l.owner = append(l.address, address), append(l.id, id), append(l.owner, 0)
	return uint32(len(l.born) - 1)
}

func (l *lives) siteOf(site memory.Site) uint32 {
	key := site.Key()
	i, ok := l.siteIndex[key]
	if !ok {
		i = uint32(len(l.sites))
		l.siteIndex[key] = i
		site.Devices = slices.Clone(site.Devices)
		l.sites = append(l.sites, site)
	}
	return i
}

func (l *lives) alloc(row uint32, e *event.Event, banks uint32) {
	key := objectKey{e.PID, e.BufferID}
	if old, ok := l.buffers[key]; ok {
		l.died[old] = row // its free was lost
	}
	l.buffers[key] = l.add(row, memory.Site{
		PID: e.PID, Stack: e.Stack, Region: e.Region, Layout: e.Layout, BeforeAttach: e.BeforeAttach,
		PerCore: e.PerCore && e.Region == event.L1, Devices: e.Devices,
	}, e.BytesPerBank, banks, e.Address, e.BufferID)
}

// begin adds a buffer that was live before the first event.
func (l *lives) begin(row uint32, b *memory.Buffer) {
	l.buffers[objectKey{b.PID, b.BufferID}] = l.add(row, *b.Site, b.BytesPerBank, uint32(b.Banks), b.Address, b.BufferID)
	l.own(b.PID, b.BufferID, b.Owner)
}

// own sets the owner of a live buffer. Losing its owner does not change the buffer's history.
func (l *lives) own(pid int, id uint64, owner memory.Owner) {
	life, live := l.buffers[objectKey{pid, id}]
	if !live || owner.Path == "" {
		return
	}
	i, ok := l.ownerIndex[owner]
	if !ok {
		i = uint32(len(l.owners))
		l.ownerIndex[owner] = i
		l.owners = append(l.owners, owner)
	}
	l.owner[life] = i
}

// free ends a buffer and returns its region; ok is false if it is not known.
func (l *lives) free(row uint32, e *event.Event) (region event.Region, ok bool) {
	key := objectKey{e.PID, e.BufferID}
	i, ok := l.buffers[key]
	if !ok {
		return 0, false
	}
	delete(l.buffers, key)
	l.died[i] = row
	return l.sites[l.site[i]].Region, true
}

// allocStatic adds a circular buffer, except on chips where the program has the same one. Those
// inside an L1 buffer are left out, because the buffer counts their memory.
func (l *lives) allocStatic(row uint32, e *event.Event) {
	key, banks := objectKey{e.PID, e.ProgramID}, 0
	for _, r := range e.Cores {
		banks += r.Cores()
	}
	devices := slices.Clone(e.Devices)
	for _, old := range l.programs[key] {
		if old.region == event.CB && old.kind == e.StaticKind && l.address[old.life] == e.Address && l.perBank[old.life] == e.SizeBytes && slices.Equal(old.cores, e.Cores) {
			devices = slices.DeleteFunc(devices, func(id int) bool { return slices.Contains(old.devices, id) })
		}
	}
	if e.Global || banks == 0 || len(devices) == 0 {
		return
	}
	life := l.add(row, memory.Site{
		PID: e.PID, Stack: e.Stack, Region: event.CB, Static: e.StaticKind, BeforeAttach: e.BeforeAttach, Devices: devices,
	}, e.SizeBytes, uint32(banks), e.Address, e.ProgramID)
	l.programs[key] = append(l.programs[key], static{life, event.CB, e.StaticKind, devices, slices.Clone(e.Cores)})
}

func (l *lives) endStatics(row uint32, e *event.Event) {
	l.end(row, e, func(s *static) bool {
		return s.region == event.CB && (e.StaticKind == event.NotStatic || s.kind.FreedAs() == e.StaticKind)
	})
}

// loadKernel adds the kernels of a program. They replace those that it has.
func (l *lives) loadKernel(row uint32, e *event.Event) {
	l.unloadKernels(row, e)
	devices, key := slices.Clone(e.Devices), objectKey{e.PID, e.ProgramID}
	life := l.add(row, memory.Site{
		PID: e.PID, Stack: e.Stack, Region: event.Kernel, BeforeAttach: e.BeforeAttach, Devices: devices,
	}, e.SizeBytes, 1, 0, e.ProgramID)
	l.programs[key] = append(l.programs[key], static{life: life, region: event.Kernel, devices: devices})
}

func (l *lives) unloadKernels(row uint32, e *event.Event) {
	l.end(row, e, func(s *static) bool { return s.region == event.Kernel })
}

// end ends the selected memory of a program on the chips of an event; on all if it names none.
// What ends on some chips only becomes two lives.
func (l *lives) end(row uint32, e *event.Event, selected func(*static) bool) {
	key := objectKey{e.PID, e.ProgramID}
	left := l.programs[key][:0]
	for _, s := range l.programs[key] {
		ends := func(id int) bool { return len(e.Devices) == 0 || slices.Contains(e.Devices, id) }
		switch {
		case !selected(&s) || !slices.ContainsFunc(s.devices, ends):
			left = append(left, s)
			continue
		case slices.ContainsFunc(s.devices, func(id int) bool { return !ends(id) }):
			site, i := l.sites[l.site[s.life]], s.life
			site.Devices = slices.DeleteFunc(slices.Clone(s.devices), func(id int) bool { return !ends(id) })
			ended := l.add(l.born[i], site, l.perBank[i], l.banks[i], l.address[i], l.id[i])
			s.devices = slices.DeleteFunc(slices.Clone(s.devices), ends)
			site.Devices = s.devices
			l.died[ended], l.site[i] = row, l.siteOf(site)
			left = append(left, s)
		default:
			l.died[s.life] = row
		}
	}
	if l.programs[key] = left; len(left) == 0 {
		delete(l.programs, key)
	}
}
