package kernel

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
)

// findDirectMap searches for the kernel's map of physical memory, for bpf/src/memory.h, with a page of its
// own: the address is right if it shows the page's random words. The kernel does not publish it, and on
// some machines (encrypted memory, Xen's paravirtual guests) page tables cannot be used. Without it, the
// kernel side copies memory with a helper, which takes ten times as long. spec is consumed.
func findDirectMap(spec *ebpf.CollectionSpec, types *btf.Cache) (none bpf.KernelFindDirectMap, err error) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return none, fmt.Errorf("mapping a page: %w", err)
	}
	defer unix.Munmap(page)
	_, _ = rand.Read(page) // has no error
	var objs struct {
		Program *ebpf.Program  `ebpf:"on_find_direct_map"`
		Finding *ebpf.Variable `ebpf:"finding"`
	}
	if err := spec.LoadAndAssign(&objs, &ebpf.CollectionOptions{Cache: types}); err != nil {
		return none, fmt.Errorf("loading the search for the direct map: %w", err)
	}
	defer objs.Program.Close()

	const physical = 1<<52 - 1<<12
	const maxGibibytes = 65536
	for _, levels := range []uint32{4, 5} {
		// AMD's memory encryption marks entries with one of the address bits
		for _, mask := range []uint64{physical, physical &^ (1 << 51), physical &^ (1 << 47)} {
			f := bpf.KernelFindDirectMap{Page: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page)))), Mask: mask, Levels: levels}
			for i := range f.Words {
				f.Words[i] = binary.NativeEndian.Uint64(page[8*i:])
			}
			for f.From = 0; f.From < maxGibibytes; f.From += bpf.GibibytesARun {
				if err := objs.Finding.Set(&f); err != nil {
					return none, err
				}
				if _, err := objs.Program.Run(&ebpf.RunOptions{}); err != nil {
					return none, fmt.Errorf("searching for the direct map: %w", err)
				}
				if err := objs.Finding.Get(&f); err != nil {
					return none, err
				}
				if f.Found != 0 {
					return f, nil
				}
			}
		}
	}
	return none, errors.New("the kernel's map of physical memory was not found")
}
