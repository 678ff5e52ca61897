package bpf

import (
	"bytes"

	"github.com/cilium/ebpf"
)

// onOwnStack is the beginning of the machine code of a BPF function with a stack of its own
// for each CPU: add %gs:this_cpu_off, %r9.
var onOwnStack = []byte{0x65, 0x4c, 0x03, 0x0c, 0x25}

// SharesStack reports whether a program's threads share one stack per CPU, which
// KEEP_THREAD_STACK in src/maps.h should prevent. If the kernel does not show the program's
// machine code, it returns false.
func SharesStack(p *ebpf.Program) bool {
	info, err := p.Info()
	if err != nil {
		return false
	}
	code, ok := info.JitedInsns()
	return ok && bytes.Contains(code, onOwnStack)
}
