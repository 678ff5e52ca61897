package aggregate

import (
	"slices"

	"ttmem/tracer/event"
)

// profileDevice is a chip, with the pools of its regions.
type profileDevice struct {
	id    int
	pools [event.NumRegions]pool
}

// A pool is one region of one chip, of all processes.
type pool struct {
	bytes, peak, peakTime uint64
	// peaks is how often bytes was higher than ever before.
	peaks uint64
	// most is what there can be at the most: more is no peak; 0 where that is not known.
	most uint64
}

// A profileSet is the chips that something is on, each once.
type profileSet struct {
	ids     []int
	devices []*profileDevice
}

type siteKey struct {
	stack  uint64
	set    *profileSet
	pid    int32
	region event.Region
}

// A site is one call stack that allocates in a region of the same chips.
type site struct {
	key   siteKey
	stack *event.Stack
	// tallies are one for each chip of the set.
	tallies []tally
}

// A tally is what one stack has on one chip. What it had at the pool's peak is
// saved only when the tally changes after that peak, so that a new peak costs
// nothing, however many stacks there are.
type tally struct {
	pool                     *pool
	allocated, current, left Amount
	// saved is what current was at the pool's peak number savedAt.
	saved   Amount
	savedAt uint64
}

func (t *tally) save() {
	if t.savedAt != t.pool.peaks {
		t.saved, t.savedAt = t.current, t.pool.peaks
	}
}

// add counts one more of that many bytes.
func (t *tally) add(bytes, now uint64) {
	t.save()
	n := Amount{1, bytes}
	t.allocated.add(n)
	t.current.add(n)
	p := t.pool
	if p.bytes += bytes; p.bytes > p.peak && p.fits() {
		p.peak, p.peakTime = p.bytes, now
		p.peaks++
	}
}

// fits reports whether what there is can be there.
func (p *pool) fits() bool { return p.most == 0 || p.bytes <= p.most }

// remove ends one of that many bytes. It was given back if reason says that
// nothing else took it.
func (t *tally) remove(bytes uint64, reason event.Reason) {
	t.save()
	n := Amount{1, bytes}
	t.current.sub(n)
	t.pool.bytes -= bytes
	if reason == event.ReasonDeviceClose || reason == event.ReasonProcessExit {
		t.left.add(n)
	}
}

func (t *tally) atPeak() Amount {
	if t.savedAt == t.pool.peaks {
		return t.saved
	}
	return t.current
}

func (p *Profile) site(e *event.Event, region event.Region) *site {
	key := siteKey{set: p.set(e.Devices), pid: int32(e.PID), region: region}
	if e.Stack != nil {
		key.stack = e.Stack.ID
	}
	s := p.sites[key]
	if s == nil {
		s = &site{key: key, stack: e.Stack, tallies: make([]tally, len(key.set.devices))}
		for i, d := range key.set.devices {
			s.tallies[i].pool = &d.pools[region]
			// It had nothing at the peaks before.
			s.tallies[i].savedAt = d.pools[region].peaks
		}
		p.sites[key] = s
		p.order = append(p.order, s)
	}
	return s
}

// set returns the set of these chips, of NoDevice where there are none. There
// are few sets, and the same one comes mostly many times in a row.
func (p *Profile) set(ids []int) *profileSet {
	if p.lastSet != nil && slices.Equal(p.lastSet.ids, ids) {
		return p.lastSet
	}
	i := slices.IndexFunc(p.sets, func(s *profileSet) bool { return slices.Equal(s.ids, ids) })
	if i < 0 {
		i = len(p.sets)
		s := &profileSet{ids: slices.Clone(ids)}
		if len(ids) == 0 {
			s.devices = append(s.devices, p.device(NoDevice))
		}
		for _, id := range ids {
			if d := p.device(id); !slices.Contains(s.devices, d) {
				s.devices = append(s.devices, d)
			}
		}
		p.sets = append(p.sets, s)
	}
	p.lastSet = p.sets[i]
	return p.lastSet
}

func (p *Profile) device(id int) *profileDevice {
	d := p.devices[id]
	if d == nil {
		d = &profileDevice{id: id}
		p.devices[id] = d
	}
	return d
}
