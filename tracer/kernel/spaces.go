package kernel

import (
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
)

// showers is how many updates of address spaces the kernel may finish at the same time.
const showers = 4

// A showing shows the address space in a map to the kernel side.
type showing struct {
	slot uint32
	m    *ebpf.Map
	done chan error // gets the result
}

// shower shows address spaces. After an update, the kernel waits for all programs that may use the old
// one: 80 ms on a busy host, in which a process maps its next libraries and allocates. So this wait is in
// the background.
type shower struct {
	wanted  chan showing
	working sync.WaitGroup
}

func newShower(spaces *ebpf.Map) *shower {
	s := &shower{wanted: make(chan showing)}
	for range showers {
		s.working.Go(func() {
			host.RaisePriority()
			for w := range s.wanted {
				w.done <- spaces.Put(w.slot, w.m)
				w.m.Close()
			}
		})
	}
	return s
}

// close waits until all updates are done.
func (s *shower) close() {
	close(s.wanted)
	s.working.Wait()
}

// ShowSpace makes an address space the one in a slot, and returns as soon as the kernel side uses it; with
// unused, only when no program uses the one before it any more.
func (o *Objects) ShowSpace(slot uint32, m *ebpf.Map, unused bool) error {
	if unused {
		return o.Spaces.Put(slot, m)
	}
	var before ebpf.MapID
	_ = o.Spaces.Lookup(slot, &before) // 0: there is none
	m, err := m.Clone()
	if err != nil {
		return err
	}
	w := showing{slot, m, make(chan error, 1)}
	o.shower.wanted <- w
	for {
		var shown ebpf.MapID
		if o.Spaces.Lookup(slot, &shown) == nil && shown != before {
			return nil
		}
		select {
		case err := <-w.done:
			return err
		case <-time.After(50 * time.Microsecond):
		}
	}
}
