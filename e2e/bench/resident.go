package main

import (
	"fmt"
	"os"
	"strings"
)

// resident is the memory of a process in bytes, by the name of a line of
// /proc/PID/status such as VmRSS.
func resident(pid int, name string) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if bytes, ok := kilobytes(line, name); ok {
			return bytes, nil
		}
	}
	return 0, fmt.Errorf("no %s in /proc/%d/status", name, pid)
}

// residentMaps returns the part of a process's memory that is BPF maps, in bytes. A ring
// buffer's data is mapped twice in a row, so that a record never wraps, and counts twice.
func residentMaps(pid int) (sum float64, err error) {
	smaps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, err
	}
	inMap := false
	for line := range strings.Lines(string(smaps)) {
		if name, _, _ := strings.Cut(line, " "); !strings.HasSuffix(name, ":") { // the first line of a mapping
			inMap = strings.Contains(line, "anon_inode:bpf-map")
		} else if bytes, ok := kilobytes(line, "Rss"); ok && inMap {
			sum += bytes
		}
	}
	return sum, nil
}

// kilobytes parses a line such as "VmRSS:   1234 kB".
func kilobytes(line, name string) (float64, bool) {
	rest, ok := strings.CutPrefix(line, name+":")
	var kb float64
	if ok {
		_, err := fmt.Sscan(rest, &kb)
		ok = err == nil
	}
	return kb * 1024, ok
}
