// Package accessor runs short functions of a library on a copy of a process's memory, as they would
// run in it. So their results are known without the layout of their classes.
package accessor

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// A Module is a file that is mapped in the process.
type Module struct {
	// Start and End are the addresses of its code in the process. Bias is their distance from those
	// in the file.
	Start, End, Bias uint64
	// PLT names the function that an entry of the file's procedure linkage table calls.
	PLT func(address uint64) (name string, ok bool)
	// Function is the address of an exported function in the file.
	Function func(name string) (address uint64, ok bool)
}

// A Machine runs functions.
type Machine struct {
	Modules []Module
	// Read fills b from an address of the process.
	Read func(address uint64, b []byte) bool

	code  map[uint64]*x86asm.Inst
	found map[string]uint64
}

const (
	// maxSteps bounds the instructions of one call.
	maxSteps = 4096
	// The stack is at an address that no process has.
	stackEnd  = 1 << 60
	stackSize = 8 << 10
	// returned is the address to which the function returns.
	returned = 1 << 61
	// maxCode bounds the decoded instructions that are kept, and maxWritten the bytes that a call
	// writes besides its stack, such as counts of references.
	maxCode    = 1 << 16
	maxWritten = 256
)

// Errors of a function that cannot be run to its end.
var (
	errSteps  = errors.New("takes too many instructions")
	errWrites = errors.New("writes much")
	errReads  = errors.New("reads what cannot be read")
)

// Function returns the address in the process of the first of these functions that a module has;
// 0 if there is none.
func (m *Machine) Function(names ...string) uint64 {
	for _, name := range names {
		at, known := m.found[name]
		if !known {
			for i := range m.Modules {
				if in, ok := m.Modules[i].Function(name); ok {
					at = in + m.Modules[i].Bias
					break
				}
			}
			if m.found == nil {
				m.found = make(map[string]uint64)
			}
			m.found[name] = at
		}
		if at != 0 {
			return at
		}
	}
	return 0
}

// Call runs the function at an address with one argument, and returns rax and rdx.
func (m *Machine) Call(function, argument uint64) (rax, rdx uint64, err error) {
	r := &run{Machine: m, at: function}
	r.registers[rdi] = argument
	err = r.toEnd()
	return r.registers[0], r.registers[2], err
}

// CallForObject runs the function at an address with one argument, and returns the first word of
// the object that it returns: one that is too large for registers, or no plain value.
func (m *Machine) CallForObject(function, argument uint64) (word uint64, err error) {
	const object = stackEnd - 256
	r := &run{Machine: m, at: function}
	r.registers[rdi], r.registers[rsi] = object, argument
	if err := r.toEnd(); err != nil {
		return 0, err
	}
	return r.load(object, 8)
}

// toEnd runs a function until it returns.
func (r *run) toEnd() error {
	function := r.at
	r.registers[rsp] = stackEnd - 512
	if err := r.push(returned); err != nil {
		return err
	}
	for range maxSteps {
		if r.at == returned {
			return nil
		}
		at := r.at
		if err := r.step(); err != nil {
			return fmt.Errorf("the function at %#x, at %#x: %w", function, at, err)
		}
	}
	return errSteps
}

// instruction decodes the instruction at an address.
func (m *Machine) instruction(at uint64) (*x86asm.Inst, error) {
	if known := m.code[at]; known != nil {
		return known, nil
	}
	var b [15]byte
	n := len(b)
	for n > 0 && !m.Read(at, b[:n]) { // the mapping may end here
		n--
	}
	if n == 0 {
		return nil, errReads
	}
	// endbr64 and notrack are hints
	if n >= 4 && [4]byte(b[:4]) == [4]byte{0xf3, 0x0f, 0x1e, 0xfa} {
		return m.keep(at, x86asm.Inst{Op: x86asm.NOP, Len: 4}), nil
	}
	hint := 0
	if b[0] == 0x3e || b[0] == 0xf2 {
		hint = 1
	}
	i, err := x86asm.Decode(b[hint:n], 64)
	if err != nil {
		return nil, err
	}
	i.Len += hint
	return m.keep(at, i), nil
}

func (m *Machine) keep(at uint64, i x86asm.Inst) *x86asm.Inst {
	if m.code == nil || len(m.code) >= maxCode {
		m.code = make(map[uint64]*x86asm.Inst)
	}
	m.code[at] = &i
	return &i
}

// target returns where a jump or call to an address leads: past the linkage table.
func (m *Machine) target(at uint64) uint64 {
	for i := range m.Modules {
		if module := &m.Modules[i]; at >= module.Start && at < module.End {
			if name, ok := module.PLT(at - module.Bias); ok {
				if to := m.Function(name); to != 0 {
					return to
				}
			}
			break
		}
	}
	return at
}

// The numbers of registers in instructions.
const (
	rsp = 4
	rbp = 5
	rsi = 6
	rdi = 7
)

// A run is a call in progress.
type run struct {
	*Machine
	registers                   [16]uint64
	at                          uint64
	stack                       [stackSize]byte
	written                     map[uint64]byte
	zero, sign, carry, overflow bool
}

// load returns the n bytes at an address, of the stack or the process.
func (r *run) load(at uint64, n int) (uint64, error) {
	var b [8]byte
	if at >= stackEnd-stackSize && at <= stackEnd-uint64(n) {
		copy(b[:n], r.stack[at-(stackEnd-stackSize):])
	} else if !r.Read(at, b[:n]) {
		return 0, errReads
	}
	for i := range b[:n] {
		if written, ok := r.written[at+uint64(i)]; ok {
			b[i] = written
		}
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

// store writes to the stack or, for the rest of the call only, over the process's memory.
func (r *run) store(at, value uint64, n int) error {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], value)
	if at >= stackEnd-stackSize && at <= stackEnd-uint64(n) {
		copy(r.stack[at-(stackEnd-stackSize):], b[:n])
		return nil
	}
	if len(r.written)+n > maxWritten {
		return errWrites
	}
	if r.written == nil {
		r.written = make(map[uint64]byte)
	}
	for i := range b[:n] {
		r.written[at+uint64(i)] = b[i]
	}
	return nil
}

func (r *run) push(value uint64) error {
	r.registers[rsp] -= 8
	return r.store(r.registers[rsp], value, 8)
}

func (r *run) pop() (uint64, error) {
	value, err := r.load(r.registers[rsp], 8)
	r.registers[rsp] += 8
	return value, err
}
