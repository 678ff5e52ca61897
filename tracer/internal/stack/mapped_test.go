package stack

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// Code that a process has just mapped is published from the kernel's records, as /proc/PID/maps would tell it.
func TestCodeIsShownBeforeMappingsAreRead(t *testing.T) {
	imports := "import bz2, ctypes, decimal, lzma, sqlite3, ssl, sys, _elementtree"
	maps, err := exec.Command("python3", "-c", imports+"; print(open('/proc/self/maps').read())").Output()
	qt.Assert(t, qt.IsNil(err))
	var files []string
	for line := range strings.Lines(string(maps)) {
		if m, ok := host.ParseCodeMapping(strings.TrimSpace(line)); ok && m.File.Inode != 0 {
			files = append(files, m.Path)
		}
	}
	program := tracetest.Start(t, "python3", "-c", "print('ready', flush=True); input(); "+imports+"; print('imported', flush=True); input()")
	pid := program.Process.Pid
	tr := knowing(t, nil, pid)
	tr.Prepare(files)
	p := tr.byPID[pid]
	before := len(p.newest.mappings)
	watch, err := host.WatchMappings()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(program.Do(t, ""), "imported"))
	read := func(list []host.NewMapping) {
		for _, m := range list {
			tr.Mapped(m)
		}
		watch.Interrupt()
	}
	qt.Assert(t, qt.IsNil(watch.Read(func() int { return 1 }, read, func() { t.Error("lost") })))
	watch.Close()

	qt.Assert(t, qt.IsNil(tr.showMade(pid)))
	shown := p.newest
	now, err := tr.read(pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(len(shown.mappings) >= before+10), qt.Commentf("%d, and %d", before, len(shown.mappings)))
	qt.Check(t, qt.DeepEquals(starts(shown.mappings), starts(now.mappings)))
	k := kernelSpace(t, tr, p.slot)
	qt.Check(t, qt.Equals(k.Generation, shown.generation))
	unwound := 0
	for _, m := range k.Mappings[:k.Count] {
		if m.Index != bpf.NoTable {
			unwound++
		}
	}
	qt.Check(t, qt.IsTrue(unwound >= before+10))

	tr.Changed(pid)
	tr.Settle()
	qt.Check(t, qt.Equals(p.newest, shown)) // it was right
	qt.Check(t, qt.HasLen(p.made.since(p.readNs), 0))
}

// starts names mappings, for a comparison.
func starts(mappings []codeMapping) (list []string) {
	for _, m := range mappings {
		list = append(list, fmt.Sprintf("%x-%x %x %p %s", m.start, m.end, m.bias, m.file, m.file.path))
	}
	return list
}

// New mappings replace others where these were, in the order in which they were made.
func TestAfterMade(t *testing.T) {
	s := NewSpaces(new(host.Readers), func(string) {})
	known := host.FileID{Minor: 1, Inode: 2}
	file := s.files.add(known, &codeFile{path: "known"})
	known.Generation = 3 // of the records alone
	before := []codeMapping{{start: 10, end: 20, file: anonymous}, {start: 30, end: 60, bias: 5, file: anonymous}, {start: 70, end: 80, file: anonymous}}
	made := func(ns, start, end uint64, id host.FileID) host.NewMapping {
		return host.NewMapping{Mapping: host.Mapping{Start: start, End: end, File: id}, TimeNs: ns}
	}
	for _, c := range []struct {
		made []host.NewMapping
		want []codeMapping
	}{
		{[]host.NewMapping{made(1, 0, 10, known)}, append([]codeMapping{{end: 10, file: file}}, before...)},
		{[]host.NewMapping{made(1, 40, 50, known)}, []codeMapping{
			before[0], {start: 30, end: 40, bias: 5, file: anonymous}, {start: 40, end: 50, file: file}, {start: 50, end: 60, bias: 5, file: anonymous}, before[2],
		}},
		{[]host.NewMapping{made(1, 15, 75, known)}, []codeMapping{
			{start: 10, end: 15, file: anonymous}, {start: 15, end: 75, file: file}, {start: 75, end: 80, file: anonymous},
		}},
		{[]host.NewMapping{made(1, 30, 60, host.FileID{Inode: 9})}, []codeMapping{before[0], before[2]}}, // which was not opened
		{[]host.NewMapping{made(2, 10, 20, host.FileID{}), made(1, 10, 30, known)}, []codeMapping{
			{start: 10, end: 20, file: anonymous}, {start: 20, end: 30, file: file}, before[1], before[2],
		}},
	} {
		code := madeCode{list: c.made}
		qt.Check(t, qt.DeepEquals(starts(s.files.afterMade(before, code.since(0))), starts(c.want)))
	}
}

// Records are kept until all mappings were read. Of more than are kept, none is used.
func TestMadeSince(t *testing.T) {
	s := NewSpaces(new(host.Readers), func(string) {})
	p := &space{}
	s.byPID[1] = p
	for ns := uint64(1); ns <= maxMade; ns++ {
		s.Mapped(host.NewMapping{PID: 1, TimeNs: ns})
		s.Mapped(host.NewMapping{PID: 2, TimeNs: ns})
	}
	qt.Check(t, qt.HasLen(p.made.since(0), maxMade))
	qt.Check(t, qt.HasLen(p.made.since(100), maxMade-100))
	for range maxMade {
		s.Mapped(host.NewMapping{PID: 1, TimeNs: host.Now()})
	}
	qt.Check(t, qt.HasLen(p.made.since(100), 0))
	read := host.Now()
	s.Mapped(host.NewMapping{PID: 1, TimeNs: host.Now() + 1})
	qt.Check(t, qt.HasLen(p.made.since(read), 1))
}
