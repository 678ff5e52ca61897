package stack

import (
	"encoding/binary"
	"fmt"
	"slices"

	"ttmem/bpf"
	"ttmem/tracer/host"
)

// probePython returns where a process has its CPython and its C library, or nil, and reports whether the probe on the
// former is placed, which it begins to place.
func (s *Spaces) probePython(pid int, p *space, mappings []codeMapping) (interpreter, libc *codeMapping, ready bool) {
	for i := range mappings {
		m := &mappings[i]
		switch {
		case m.file.python != nil && interpreter == nil:
			interpreter = m
		case m.file.pthread != nil:
			libc = m
		case m.file.refused != nil && !p.warned:
			p.warned = true
			s.warn(fmt.Sprintf("process %d: stacks have no Python frames: %v", pid, m.file.refused))
		}
	}
	if interpreter == nil {
		return nil, libc, false
	}
	// report code objects that die, as others may take their addresses
	ready, err := s.placeOnce(pid, p, &p.dealloc, interpreter, interpreter.file.python.CodeDealloc, s.objs.OnCodeDealloc, 0)
	if err != nil && !p.warned {
		p.warned = true
		s.warn(fmt.Sprintf("process %d: stacks have no Python frames: %v", pid, err))
	}
	return interpreter, libc, ready
}

// findPython sets the fields with which the kernel side reads the process's CPython, if there is
// one.
func (s *Spaces) findPython(pid int, p *space, mappings []codeMapping, k *bpf.KernelPythonOffsets) {
	interpreter, libc, ready := s.probePython(pid, p, mappings)
	if interpreter == nil || libc == nil {
		return
	}
	r := interpreter.file.python
	key := s.readKey(pid, p, r.Runtime+interpreter.bias+r.Key)
	if !ready {
		key = pythonKey{} // it is published with the key once the probe is placed
	}
	if p.shownKey = key; !key.known {
		return
	}
	o := &r.Offsets
	*k = bpf.KernelPythonOffsets{
		Minor: uint32(r.Minor), ThreadFrame: o.ThreadFrame, CframeFrame: bpf.NoField,
		FrameCode: o.FrameCode, FramePrevious: o.FramePrevious,
		FrameInstruction: o.FrameInstruction, FrameOwner: o.FrameMarker,
		CodeName: o.CodeName, CodeFile: o.CodeFile, CodeQualname: o.CodeQualName,
		CodeFirstLine: o.CodeFirstLine, CodeLineTable: o.CodeLineTable, CodeBytes: o.CodeBytes,
		FrameCopy: o.FrameCopy, CodeCopies: o.CodeCopies,
		StrAscii: o.StrASCII, StrOther: o.StrOther, StrShift: o.StrShift, Head: o.Head,
		Key: key.number, CodeType: r.CodeType + interpreter.bias,
	}
	if o.CFrame {
		k.CframeFrame = o.CFrameFrame
	}
	pthread := libc.file.pthread
	k.KeySlots, k.PthreadSpecific = pthread.Level2Size, pthread.Specific
	k.KeySlot, k.KeyData = pthread.KeySize, pthread.KeyData
}

// pythonKey is the key by which a CPython's threads find their state.
type pythonKey struct {
	number uint32
	known  bool // false: not yet initialised, or not readable
}

// keyRead is the last value read of a process's key; Spaces.mu protects it.
type keyRead struct {
	pythonKey
	reading, again bool // again: another read follows the present one
}

// readKey returns the key that was last read, and reads it again in the background, because the
// process's memory may not answer. If it has changed, the process is published again.
func (s *Spaces) readKey(pid int, p *space, at uint64) pythonKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k := &p.key; k.reading {
		k.again = true
	} else {
		k.reading = true
		go s.keepReading(pid, p, at)
	}
	return p.key.pythonKey
}

func (s *Spaces) keepReading(pid int, p *space, at uint64) {
	memory := s.readers.Of(pid).Memory(s.closing)
	for more := true; more; {
		// struct Py_tss_t: an initialised flag and the key
		tss := make([]byte, 8)
		read := []host.Piece{{Address: at, Data: tss}}
		err := memory.Read(read)
		var key pythonKey
		if err == nil && read[0].OK && binary.LittleEndian.Uint32(tss) == 1 {
			key = pythonKey{binary.LittleEndian.Uint32(tss[4:]), true}
		}
		s.mu.Lock()
		k := &p.key
		if _, dirty := s.dirty[pid]; k.pythonKey != key && !dirty && s.byPID[pid] == p {
			s.dirty[pid] = false
		}
		more = k.again && err == nil
		*k = keyRead{pythonKey: key, reading: more}
		s.mu.Unlock()
	}
	s.wakeUp()
}

// lacksPython reports whether the present state of a process's CPython was not published.
func (s *Spaces) lacksPython(p *space, mappings []codeMapping) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (!p.dealloc.placed || p.key.pythonKey != p.shownKey) &&
		slices.ContainsFunc(mappings, func(m codeMapping) bool { return m.file.python != nil })
}
