// Package layout derives from the machine code of a tt-metal library the offsets of its objects'
// fields and the addresses to probe. There is no table of releases: a new library is read the
// same way. For each field or probe that cannot be derived, it reports the reason and the lost
// features.
// It is not part of ttmem's Go library: it changes without notice.
package layout

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"ttmem/symbolize"
	"ttmem/symbolize/x86"
)

// ErrNoLibrary means that a file is not a tt-metal library.
var ErrNoLibrary = errors.New("not a tt-metal library")

// ErrStripped means that a file contains tt-metal, and has no names of its functions.
var ErrStripped = errors.New("it contains tt-metal, whose symbols are stripped: it has no .symtab, and exports no functions of tt-metal")

// Chain is the loads that lead from an object to a field.
type Chain = x86.Chain

// Types is the number of tt-metal's BufferTypes: DRAM, L1, SYSTEM_MEMORY,
// L1_SMALL and TRACE.
const Types = 5

// Layout is the layout of one library.
type Layout struct {
	// BuildID is the library's build ID, in hex.
	BuildID string
	// Fields are the derived fields by name. Fields of Buffer have their own names (`size_`) and
	// begin at Buffer*; others have their class (`Device.id_`) and begin at a pointer to it.
	// costs.go says which feature needs each field.
	Fields map[string]Chain
	// Probes are the derived places to probe, by name.
	Probes map[string]Probe
	// Exceptions are the places where exceptions are made, caught and rethrown.
	Exceptions []ExceptionProbe
	// Single are the fields that only one function supports, in order: no other one confirms them.
	Single []string
	// Missing are the fields and probes that were not found. Parts of features that the release
	// does not have, such as dataflow buffers, are not missing.
	Missing []Missing

	// ImplArgs is true if Buffer's deallocate_impl and allocate_impl get (BufferImpl*, Buffer&),
	// as from 0.79 on, and false if they get (Buffer*).
	ImplArgs bool
	// WritesShared is true if the function at the probe buffer_write gets a shared_ptr to the buffer, as before 0.72.
	WritesShared bool
	// AllocateImpl is Buffer's allocate_impl, which is on the stack of each failed
	// allocation.
	AllocateImpl symbolize.Symbol
	// BufferCounter is the address of the number of Buffers that a process has made, next_unique_id; 0 if not
	// found.
	BufferCounter uint64
	// ShardRegisters are the registers, by their numbers in instructions (rax is 0, r15 is
	// 15), that hold the allocator's request at the probe bank_shards: size and page size
	// in bytes, and the optional number of shards as it was passed, with bit 32 set. -1 if
	// unknown.
	ShardRegisters [3]int
	// DeviceVtable and MeshVtable are the first words of a Device and of a
	// distributed::MeshDevice, before the library's load bias is added; 0 if not found.
	DeviceVtable, MeshVtable uint64
	// MeshStride is the size of an element in the vector that the field MeshDevice.devices
	// leads to, and MeshLocal the offset in it of a byte that is 1 for the chips of this
	// host: -1 if all are.
	MeshStride, MeshLocal int
	// Managers are the offsets in an allocator of the pointers to the BankManagers by
	// BufferType, -1 for types without one.
	Managers [Types]int
	// FreeList and ShardCores locate the bytes that live buffers take of their banks. If not
	// found, they have no Sizes and no Cores.
	FreeList   FreeList
	ShardCores ShardCores
}

// Missing is a field or probe that was not found.
type Missing struct {
	// Name is as in Fields and Probes.
	Name string `json:"name"`
	// Why is the reason, in one line.
	Why string `json:"why"`
	// Costs are the features that users lose, in one line.
	Costs string `json:"costs"`
}

// Derive derives the layout of a library. The result lists missing fields and probes; the error
// is that of Recognize if the file is not a tt-metal library that can be traced.
func Derive(e *symbolize.ELF) (*Layout, error) {
	d, err := derive(e)
	if err != nil {
		return nil, err
	}
	return d.layout, nil
}

// IsLibrary reports whether a file is a tt-metal library with names of functions, in a thousandth of Derive's time.
func IsLibrary(e *symbolize.ELF) bool {
	return e.Defines(mangle("GraphTracker::track_allocate"), mangle("Buffer::address const"))
}

// typeNames are in the run-time type information of each release, and in no other file of it. No tool strips them.
var typeNames = []string{"N2tt8tt_metal6DeviceE", "N2tt8tt_metal9allocator11FreeListOptE"}

// Recognize returns nil for a tt-metal library, ErrStripped for one without names of its functions, and ErrNoLibrary
// for other files.
func Recognize(e *symbolize.ELF) error {
	switch {
	case IsLibrary(e):
		return nil
	case e.Size() >= minLibrary && e.HasConstants(typeNames...):
		return ErrStripped
	}
	return ErrNoLibrary
}

// minLibrary is less than the smallest tt-metal library has, in bytes: those of 0.62 have 7 MB.
const minLibrary = 2 << 20

func derive(e *symbolize.ELF) (*deriver, error) {
	d := &deriver{
		e: e, agreed: map[string]int{},
		layout: &Layout{
			BuildID: e.BuildID(), Fields: map[string]Chain{}, Probes: map[string]Probe{},
			MeshLocal: -1, Managers: noManagers, ShardRegisters: noRegisters,
		},
		flows: map[uint64]*flow{},
	}
	if err := Recognize(e); err != nil {
		return nil, err
	}
	d.impl = implPaths(e)
	d.probes()
	d.buffer()
	d.perCoreBuffers()
	d.devices()
	d.allocator()
	d.liveBuffers()
	d.programs()
	d.livePrograms()
	d.uses()
	for name := range d.layout.Fields {
		if d.agreed[name] < 2 {
			d.layout.Single = append(d.layout.Single, name)
		}
	}
	slices.Sort(d.layout.Single)
	return d, nil
}

// deriver collects the layout of one library.
type deriver struct {
	e      *symbolize.ELF
	layout *Layout
	flows  map[uint64]*flow
	impl   map[string]Chain // implPaths
	// agreed is the number of sources for each field
	agreed map[string]int
}

// source is one way to find a field.
type source struct {
	// function is the function to read, as for mangle. Several if the function was renamed.
	function []string
	find     finder
}

func from(find finder, function ...string) source {
	return source{function, find}
}

// errShape means that the code of a function has an unknown form.
var errShape = errors.New("its code is not understood")

// chain reads a field of width bytes from its sources, and returns how many found it. They
// must agree: a field that two functions seem to use at different places is unknown.
func (d *deriver) chain(width int32, sources ...source) (found Chain, agreed int, err error) {
	var where string
	var reasons []string
	for _, s := range sources {
		f, err := d.function(s.function...)
		if err != nil {
			reasons = append(reasons, err.Error())
			continue
		}
		name := symbolize.ShortName(f.Name)
		fl, err := d.flow(f)
		if err == nil {
			var c Chain
			if c, err = s.find(fl); err == nil {
				err = plausible(c, width)
			}
			if err == nil && found != nil && !slices.Equal(c, found) {
				return nil, 0, fmt.Errorf("%s has it at %v, but %s at %v", where, found, name, c)
			}
			if err == nil {
				found, where = c, name
				agreed++
				continue
			}
		}
		reasons = append(reasons, name+": "+err.Error())
	}
	if found == nil {
		return nil, 0, errors.New(strings.Join(slices.Compact(reasons), "; "))
	}
	return found, agreed, nil
}

// field finds a field of width bytes and puts it into the layout.
func (d *deriver) field(name string, width int32, sources ...source) (Chain, bool) {
	c, agreed, err := d.chain(width, sources...)
	if err != nil {
		d.miss(name, err.Error())
		return nil, false
	}
	d.agreed[name] = agreed
	d.layout.Fields[name] = c
	return c, true
}

// attempt derives something other than a field.
func (d *deriver) attempt(name string, derive func() error) {
	if err := derive(); err != nil {
		d.miss(name, err.Error())
	}
}

func (d *deriver) miss(name, why string) {
	d.layout.Missing = append(d.layout.Missing, Missing{Name: name, Why: why, Costs: costs[name]})
}

// maxOffset bounds the offset of a field, in bytes. The largest object with a field of
// interest has 2 KiB.
const maxOffset = 1 << 14

// plausible checks that a chain can lead to a field of width bytes: no field is unaligned,
// far away or behind a long chain.
func plausible(c Chain, width int32) error {
	if len(c) == 0 || len(c) > 4 {
		return errShape
	}
	for i, offset := range c {
		align := int32(8) // of the pointers on the way
		if i == len(c)-1 {
			align = width
		}
		if offset < 0 || offset > maxOffset || offset%align != 0 {
			return fmt.Errorf("%v can be no field", c)
		}
	}
	return nil
}

// function returns the only function with a name, as for mangle. It uses the first of the names
// that has a match.
func (d *deriver) function(names ...string) (symbolize.Symbol, error) {
	for _, name := range names {
		found := d.e.WithPrefix(mangle(name))
		if len(found) == 0 {
			continue
		}
		for _, s := range found {
			// the same code may have several names: C1 and C2 of a constructor
			if s.Addr != found[0].Addr {
				return symbolize.Symbol{}, fmt.Errorf("more than one function is named %s", readable(name))
			}
		}
		found[0].Name = strings.Clone(found[0].Name)
		return found[0], nil
	}
	return symbolize.Symbol{}, fmt.Errorf("the library has no %s", readable(names[0]))
}

// mangle returns the beginning of the mangled name of a member of tt::tt_metal, such as
// `Buffer::size() const`. Parameters are given in their mangled form, and may be left out or
// incomplete; C1 and D1 stand for the constructor and the destructor. Mangled names stay as
// they are.
func mangle(name string) string {
	if strings.HasPrefix(name, "_Z") {
		return name
	}
	name, isConst := strings.CutSuffix(name, " const")
	name, parameters, _ := strings.Cut(name, "(")
	if parameters == ")" {
		parameters = "v"
	}
	mangled := "_ZN"
	if isConst {
		mangled = "_ZNK"
	}
	mangled += "2tt8tt_metal"
	for part := range strings.SplitSeq(name, "::") {
		if part != "C1" && part != "D1" && part != "D2" {
			mangled += strconv.Itoa(len(part))
		}
		mangled += part
	}
	return mangled + "E" + strings.TrimSuffix(parameters, ")")
}

// readable returns the qualified name of a function that is given as for mangle.
func readable(name string) string {
	if strings.HasPrefix(name, "_Z") {
		return symbolize.ShortName(name)
	}
	name, _, _ = strings.Cut(name, "(")
	return "tt::tt_metal::" + strings.TrimSuffix(name, " const")
}

// flowOf is flow for the function that these names select.
func (d *deriver) flowOf(names ...string) (*flow, error) {
	f, err := d.function(names...)
	if err != nil {
		return nil, err
	}
	return d.flow(f)
}

// flow derives a function's register contents, once.
func (d *deriver) flow(f symbolize.Symbol) (*flow, error) {
	fl, ok := d.flows[f.Addr]
	if !ok {
		fl = follow(d.e, f, d.impl)
		d.flows[f.Addr] = fl
	}
	return fl, fl.err
}
