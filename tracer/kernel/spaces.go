package kernel

import (
	"time"

	"github.com/cilium/ebpf"
)

// maxShowing bounds the changes of address spaces that the kernel finishes at the same time: each takes a
// thread and 40 KB. A program that imports ttnn makes 30 of them in two seconds.
const maxShowing = 128

// ShowSpace makes an address space the one in a slot, and returns as soon as the kernel side uses it. It calls
// unused in the background, when no program uses the one before it any more. The kernel waits for these: for a
// second and more on a busy host, in which a process maps its next libraries and allocates.
func (o *Objects) ShowSpace(slot uint32, m *ebpf.Map, unused func()) error {
	var before ebpf.MapID
	_ = o.Spaces.Lookup(slot, &before) // 0: there is none
	m, err := m.Clone()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	o.showRoom <- struct{}{}
	o.showing.Go(func() {
		err := o.Spaces.Put(slot, m)
		m.Close()
		<-o.showRoom
		if done <- err; err == nil {
			unused()
		}
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

// DropSpace empties a slot, and returns when no program uses its address space any more.
func (o *Objects) DropSpace(slot uint32) {
	o.showRoom <- struct{}{}
	_ = o.Spaces.Delete(slot)
	<-o.showRoom
}
