// Package layout works out from a tt-metal library's own machine code where the
// fields of its objects lie and where its functions can be probed. No table of
// releases takes part: a library that nobody has seen before is read the same
// way, and what cannot be found is named.
package layout

import (
	"errors"
	"fmt"
	"strings"

	"ttmem/symbolize"
)

// ErrNoLibrary means that a file holds no tt-metal.
var ErrNoLibrary = errors.New("no tt-metal library")

// Chain is the loads that lead from an object to a field: each offset but the
// last is added and dereferenced, the last is added. {0x10, 0x40} is the field at
// 0x40 of what the pointer at 0x10 points to.
type Chain []int32

// String is the chain as 0x10+0x40.
func (c Chain) String() string {
	parts := make([]string, len(c))
	for i, offset := range c {
		parts[i] = fmt.Sprintf("%#x", offset)
	}
	return strings.Join(parts, "+")
}

// Layout is what was found in a library.
type Layout struct {
	BuildID string
	// Fields are by name, from the object that the first word of the name says:
	// those without one are Buffer's.
	Fields map[string]Chain
	// Probes are by name; see the list in probes.go.
	Probes map[string]Probe
	// Missing is what was not found, and what is not seen for it.
	Missing []Missing

	// ImplArgs: Buffer's deallocate_impl takes (BufferImpl *, Buffer &) in place
	// of (Buffer *).
	ImplArgs bool
	// ShardRegisters hold size, page size and shards at the probe bank_shards,
	// numbered as instructions do.
	ShardRegisters [3]int
	// AllocateImpl is the function that is on the stack of each failed
	// allocation.
	AllocateImpl symbolize.Symbol
	// DeviceVtable and MeshVtable are what the first word of a Device and of a
	// MeshDevice points to, as an address of the file.
	DeviceVtable, MeshVtable uint64
	// MeshStride is the bytes between the chips in a mesh's vector, and MeshLocal
	// the offset in each of a byte that is 1 for chips of this host; -1: all are.
	MeshStride, MeshLocal int
	// Managers are the offsets in an allocator of the pointers to the
	// BankManagers, by BufferType; -1: there is none.
	Managers [5]int
}

// Missing is something that was not found in a library.
type Missing struct {
	Name string `json:"name"`
	// Why it was not found.
	Why string `json:"why"`
	// Costs says what is not seen without it.
	Costs string `json:"costs"`
}

// Derive reads a library.
func Derive(elf *symbolize.ELF) (*Layout, error) {
	d := &deriver{
		Layout: Layout{
			Fields: make(map[string]Chain), Probes: make(map[string]Probe),
			MeshLocal: -1, Managers: [5]int{-1, -1, -1, -1, -1},
		},
		functions: make(map[string][]symbolize.Symbol),
	}
	d.elf = elf
	if err := d.index(); err != nil {
		return nil, err
	}
	d.BuildID = elf.BuildID()
	d.probes()
	d.buffer()
	d.devices()
	d.banks()
	d.programs()
	return &d.Layout, nil
}

type deriver struct {
	Layout
	image
	// functions are by what their mangled names begin with.
	functions map[string][]symbolize.Symbol
}

// namespace is how the names of all functions begin that matter here.
const namespace = "2tt8tt_metal"

// index finds the functions that matter here.
func (d *deriver) index() error {
	for _, prefix := range wantedPrefixes() {
		for _, mangled := range []string{"_ZN" + namespace, "_ZNK" + namespace} {
			for _, s := range d.elf.WithPrefix(mangled + prefix) {
				d.functions[prefix] = addOnce(d.functions[prefix], s)
			}
		}
	}
	if d.function(trackAllocate).Addr == 0 {
		return ErrNoLibrary
	}
	return nil
}

// cutNamespace takes _ZN, K for a const method, and the namespace off a mangled
// name.
func cutNamespace(name string) (string, bool) {
	rest, ok := strings.CutPrefix(name, "_ZN")
	if !ok {
		return "", false
	}
	return strings.CutPrefix(strings.TrimPrefix(rest, "K"), namespace)
}

func addOnce(list []symbolize.Symbol, s symbolize.Symbol) []symbolize.Symbol {
	for _, have := range list {
		if have.Addr == s.Addr {
			return list
		}
	}
	return append(list, s)
}

// function is the first function whose name begins so; Addr is 0 where there is
// none.
func (d *deriver) function(prefix string) symbolize.Symbol {
	if list := d.functions[prefix]; len(list) > 0 {
		return list[0]
	}
	return symbolize.Symbol{}
}

// miss notes that a field was not found.
func (d *deriver) miss(name, why, costs string) {
	d.Missing = append(d.Missing, Missing{name, why, costs})
}
