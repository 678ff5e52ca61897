package kernel

import (
	"time"

	"github.com/cilium/ebpf"

	"ttmem/tracer/host"
)

// maxShowing is how many updates of address spaces the kernel may finish at the same time.
const maxShowing = 4

// ShowSpace makes an address space the one in a slot, and returns as soon as the kernel side uses it; with
// unused, only when no program uses the one before it any more. The kernel waits for these: 80 ms on a busy
// host, in which a process maps its next libraries and allocates. So this wait is in the background.
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
	done := make(chan error, 1)
	o.showRoom <- struct{}{}
	o.showing.Go(func() {
		host.RaisePriority()
		done <- o.Spaces.Put(slot, m)
		m.Close()
		<-o.showRoom
	})
	for {
		var shown ebpf.MapID
		if o.Spaces.Lookup(slot, &shown) == nil && shown != before {
			return nil
		}
		select {
		case err := <-done:
			return err
		case <-time.After(50 * time.Microsecond):
		}
	}
}
