package bpf

import (
	"bytes"

	"github.com/cilium/ebpf"
)

// onOwnStack is how the machine code of a BPF function begins that has a stack of its own
// for each CPU: add %gs:this_cpu_off, %r9.
var onOwnStack = []byte{0x65, 0x4c, 0x03, 0x0c, 0x25}

// SharesStack reports whether the kernel has all threads of a CPU use one stack in a
// program, as KEEP_THREAD_STACK in src/maps.h is to prevent. Where the kernel does not
// show a program's machine code, that cannot be seen, and it is false.
func SharesStack(p *ebpf.Program) bool {
	info, err := p.Info()
	if err != nil {
		return false
	}
	code, ok := info.JitedInsns()
	return ok && bytes.Contains(code, onOwnStack)
}
