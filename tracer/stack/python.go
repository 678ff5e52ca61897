package stack

import (
	"encoding/binary"
	"fmt"

	"ttmem/bpf"
	"ttmem/tracer/host"
)

// findPython fills in how the kernel side reads the process's CPython, if there is one.
func (s *Spaces) findPython(pid int, p *space, mappings []codeMapping, k *bpf.KernelPythonOffsets) {
	var interpreter, libc *codeMapping
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
	if interpreter == nil || libc == nil {
		return
	}
	r := interpreter.file.python
	// struct Py_tss_t: an initialised flag and the key
	tss, err := host.ReadMemory(pid, r.Runtime+interpreter.bias+r.Key, 8)
	if err != nil || binary.LittleEndian.Uint32(tss) != 1 {
		return // not yet initialised
	}
	if p.python == nil {
		// report code objects that die, as others may take their addresses
		dealloc, err := s.probe(pid, interpreter, r.CodeDealloc, s.objs.OnCodeDealloc, 0)
		if err != nil {
			if !p.warned {
				p.warned = true
				s.warn(fmt.Sprintf("process %d: stacks have no Python frames: %v", pid, err))
			}
			return
		}
		p.python = &pythonSpace{dealloc}
	}
	o := &r.Offsets
	*k = bpf.KernelPythonOffsets{
		Minor: uint32(r.Minor), ThreadFrame: o.ThreadFrame, CframeFrame: bpf.NoField,
		FrameCode: o.FrameCode, FramePrevious: o.FramePrevious,
		FrameInstruction: o.FrameInstruction, FrameOwner: o.FrameMarker,
		CodeName: o.CodeName, CodeFile: o.CodeFile, CodeQualname: o.CodeQualName,
		CodeFirstLine: o.CodeFirstLine, CodeLineTable: o.CodeLineTable, CodeBytes: o.CodeBytes,
		StrAscii: o.StrASCII, StrOther: o.StrOther,
		Key: binary.LittleEndian.Uint32(tss[4:]), CodeType: r.CodeType + interpreter.bias,
	}
	if o.CFrame {
		k.CframeFrame = o.CFrameFrame
	}
	pthread := libc.file.pthread
	k.KeySlots, k.PthreadSpecific = pthread.Level2Size, pthread.Specific
	k.KeySlot, k.KeyData = pthread.KeySize, pthread.KeyData
}
