package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
)

// mapMemory is the kernel's memory for a BPF map, including inner maps.
type mapMemory struct {
	name  string
	bytes uint64
}

// tableMaps are the maps with unwind tables: rows, the rules that they refer to, and the
// mappings of each process.
var tableMaps = []string{"slabs", "rules", "spaces"}

// kernelMemory returns the memory of a process's maps: those with unwind tables and the
// rest, largest first.
func kernelMemory(pid int) (tables, rest []mapMemory, err error) {
	maps, err := objectsOf(pid, "map_id:")
	if err != nil {
		return nil, nil, err
	}
	for _, id := range maps {
		m, err := memoryOf(ebpf.MapID(id))
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(tableMaps, m.name) {
			tables = append(tables, m)
		} else {
			rest = append(rest, m)
		}
	}
	if len(tables) != len(tableMaps) {
		return nil, nil, fmt.Errorf("want the maps %v, found %v", tableMaps, tables)
	}
	slices.SortFunc(rest, func(a, b mapMemory) int { return int(b.bytes) - int(a.bytes) })
	return tables, rest, nil
}

// objectsOf returns the ids of the BPF objects that a process's file descriptors have under a name.
func objectsOf(pid int, name string) (ids []uint32, err error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	for _, path := range infos {
		if id, ok := objectID(path, name); ok && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// objectID returns the BPF object that a file descriptor has under a name, if it has one.
func objectID(fdinfo, name string) (id uint32, ok bool) {
	text, err := os.ReadFile(fdinfo)
	if err != nil {
		return 0, false // it was closed meanwhile
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			_, err := fmt.Sscan(rest, &id)
			return id, err == nil
		}
	}
	return 0, false
}

func memoryOf(id ebpf.MapID) (mapMemory, error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return mapMemory{}, err
	}
	defer m.Close()
	info, err := m.Info()
	if err != nil {
		return mapMemory{}, err
	}
	bytes, ok := info.Memlock()
	if !ok {
		return mapMemory{}, errors.New("this kernel does not report the memory of a map")
	}
	all := mapMemory{info.Name, bytes}
	if m.Type() != ebpf.ArrayOfMaps {
		return all, nil
	}
	// for user space the values are the ids of the inner maps
	var key, inner uint32
	maps := m.Iterate()
	for maps.Next(&key, &inner) {
		in, err := memoryOf(ebpf.MapID(inner))
		if err != nil {
			return mapMemory{}, err
		}
		all.bytes += in.bytes
	}
	return all, maps.Err()
}
