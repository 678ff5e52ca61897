package stack

// This file publishes code from the kernel's records of new mappings. Reading all mappings of a process waits for the
// lock of its address space, which the process may hold for as long as it waits for a processor.

import (
	"cmp"
	"slices"

	"ttmem/tracer/host"
)

// maxMade bounds the records that are kept for a process until its mappings are read.
const maxMade = 128

// madeCode are the code mappings that a process has made since all of its mappings were read.
type madeCode struct {
	list []host.NewMapping
	// missedNs is when it had made more than were kept.
	missedNs uint64
}

// Mapped keeps the record of a new code mapping until the next update of its process, if the process is known.
func (s *Spaces) Mapped(m host.NewMapping) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Path = "" // its file says it
	p := s.byPID[m.PID]
	switch {
	case p == nil:
	case len(p.made.list) < maxMade:
		p.made.list = append(p.made.list, m)
	default:
		p.made = madeCode{missedNs: host.Now()}
	}
}

// since returns the mappings that were made after a time, ascending; none if some are missing.
func (c *madeCode) since(ns uint64) []host.NewMapping {
	c.list = slices.DeleteFunc(c.list, func(m host.NewMapping) bool { return m.TimeNs <= ns })
	if c.missedNs > ns {
		return nil
	}
	// each processor has records of its own
	return slices.SortedFunc(slices.Values(c.list), func(a, b host.NewMapping) int { return cmp.Compare(a.TimeNs, b.TimeNs) })
}

// showMade publishes the code that a process has mapped since its mappings were read. Files that are not open, or whose
// rows were not read, are left to the update that follows.
func (s *Spaces) showMade(pid int) error {
	s.mu.Lock()
	p := s.byPID[pid]
	var made []host.NewMapping
	if p != nil && p.newest != nil {
		made = p.made.since(p.readNs)
	}
	s.mu.Unlock()
	if len(made) == 0 {
		return nil
	}
	if now, err := s.program(pid); err != nil || now != p.program {
		return err
	}
	mappings := s.files.afterMade(p.newest.mappings, made)
	ready, err := s.probeLoader(pid, p, mappings)
	if err != nil {
		return err
	}
	used, _, _ := s.rows.tables.of(mappings, false)
	if !ready || !p.gains(mappings, used) {
		s.rows.tables.releaseAll(used)
		return nil
	}
	return s.show(pid, p, mappings, used)
}

// afterMade returns what is mapped once other mappings were made, in their order. It leaves out what is not open.
func (s *codeFiles) afterMade(mappings []codeMapping, made []host.NewMapping) []codeMapping {
	for _, m := range made {
		var rest []codeMapping
		for _, o := range mappings {
			before, after := o, o
			before.end, after.start = min(o.end, m.Start), max(o.start, m.End)
			for _, part := range [...]codeMapping{before, after} {
				if part.start < part.end {
					rest = append(rest, part)
				}
			}
		}
		if f := s.opened(m.Mapping); f != nil {
			rest = append(rest, newCodeMapping(m.Mapping, f))
		}
		mappings = rest
	}
	slices.SortFunc(mappings, func(a, b codeMapping) int { return cmp.Compare(a.start, b.start) })
	return mappings
}

// opened returns the file of a mapping if it is open, or nil.
func (s *codeFiles) opened(m host.Mapping) *codeFile {
	if m.File.Inode == 0 {
		return anonymous
	}
	m.File.Generation = 0 // /proc/PID/maps does not have it
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[m.File].Value()
}
