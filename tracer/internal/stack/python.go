package stack

import (
	"fmt"
	"slices"

	"ttmem/bpf"
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
	p.showsPython = interpreter != nil && libc != nil && ready
	if !p.showsPython {
		return // until the probe is placed
	}
	r := interpreter.file.python
	o := &r.Offsets
	*k = bpf.KernelPythonOffsets{
		Minor: uint32(r.Minor), ThreadFrame: o.ThreadFrame, CframeFrame: bpf.NoField,
		FrameCode: o.FrameCode, FramePrevious: o.FramePrevious,
		FrameInstruction: o.FrameInstruction, FrameOwner: o.FrameMarker,
		CodeName: o.CodeName, CodeFile: o.CodeFile, CodeQualname: o.CodeQualName,
		CodeFirstLine: o.CodeFirstLine, CodeLineTable: o.CodeLineTable, CodeBytes: o.CodeBytes,
		FrameCopy: o.FrameCopy, CodeCopies: o.CodeCopies,
		StrAscii: o.StrASCII, StrOther: o.StrOther, StrShift: o.StrShift, Head: o.Head,
		KeyAt: r.Runtime + interpreter.bias + r.Key, CodeType: r.CodeType + interpreter.bias,
	}
	if o.CFrame {
		k.CframeFrame = o.CFrameFrame
	}
	pthread := libc.file.pthread
	k.KeySlots, k.PthreadSpecific = pthread.Level2Size, pthread.Specific
	k.KeySlot, k.KeyData = pthread.KeySize, pthread.KeyData
}

// lacksPython reports whether a process's CPython was not published.
func (s *Spaces) lacksPython(p *space, mappings []codeMapping) bool {
	return !p.showsPython && slices.ContainsFunc(mappings, func(m codeMapping) bool { return m.file.python != nil })
}
