package stack

// This file publishes a process's code to the kernel side.

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/tracer/host"
)

// endPatience is how long the record of the end of a process may take to come.
const endPatience = 10 * time.Second

// show publishes a process's code with the tables that it uses, and releases tables that are no
// longer in use.
func (s *Spaces) show(pid int, p *space, mappings []codeMapping, tables tablesInUse) error {
	s.mu.Lock()
	s.generation++
	view := &spaceView{s.generation, mappings}
	s.mu.Unlock()
	k := bpf.KernelSpace{Generation: view.generation}
	listed := unwindable(mappings, tables)
	known := len(listed)
	if len(listed) > len(k.Mappings) {
		// leave out generated code first: it has no rows
		listed = slices.DeleteFunc(listed, func(m codeMapping) bool { return tables[m.file] == nil })
		listed = listed[:min(len(listed), len(k.Mappings))]
		if !p.warned {
			p.warned = true
			places := fmt.Sprint(len(mappings))
			if len(mappings) == host.MaxCodeMappings {
				places += " or more"
			}
			s.warn(fmt.Sprintf("process %d maps code in %s places, of which %d can be unwound", pid, places, len(listed)))
		}
	}
	for i, m := range listed {
		to := &k.Mappings[i]
		to.Start, to.End, to.Bias, to.Index = m.start, m.end, m.bias, bpf.NoTable
		if t := tables[m.file]; t != nil {
			to.Index, to.FirstPage, to.Pages = t.index, t.firstPage, t.pages
		}
		k.Count++
	}
	s.findPython(pid, p, mappings, &k.Python)
	if err := s.publish(p, view, &k, tables); err != nil {
		s.rows.tables.releaseAll(tables)
		return err
	}
	if !s.objs.ChangeProcess(p.program, 0, p.slot) {
		// It has ended or executed another program. Its last stacks may still come, and need its views: the record of its
		// end drops it, unless that has come before.
		time.AfterFunc(endPatience, func() { s.Forget(p.program) })
		return unix.ESRCH
	}
	p.listed = known
	return nil
}

// unwindable returns the mappings whose rows were read or whose files have no rows. The others are
// left out, because frame pointers would give wrong frames until their rows are read.
func unwindable(mappings []codeMapping, tables tablesInUse) []codeMapping {
	return slices.DeleteFunc(slices.Clone(mappings), func(m codeMapping) bool {
		return tables[m.file] == nil && !m.file.withoutRows()
	})
}

// publish makes a view, which uses tables, the current one. The tables of the old view are released when the
// kernel no longer uses them.
func (s *Spaces) publish(p *space, view *spaceView, k *bpf.KernelSpace, tables tablesInUse) error {
	m, err := ebpf.NewMap(s.inner)
	if err != nil {
		return fmt.Errorf("making room for its address space: %w", err)
	}
	defer m.Close()
	if err := m.Put(uint32(0), k); err != nil {
		return fmt.Errorf("storing its address space: %w", err)
	}
	// before the kernel uses it: stacks will refer to it
	s.mu.Lock()
	p.views[view.generation] = view
	for kept := max(minViews, min(maxViews, maxViewMappings/len(view.mappings))); len(p.views) > kept; {
		delete(p.views, slices.Min(slices.Collect(maps.Keys(p.views))))
	}
	p.newest = view
	s.mu.Unlock()
	old := p.tables
	s.removing.Add(1)
	err = s.objs.ShowSpace(p.slot, m, func() {
		s.rows.tables.releaseAll(old)
		s.removing.Done()
	})
	if err != nil {
		s.removing.Done()
		return fmt.Errorf("storing its address space: %w", err)
	}
	p.tables = tables
	return nil
}
