package heap

// Objects read from the memory of the real ttnn, compared with its own allocator.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
	"ttmem/tracer/layout"
)

// allocatorView is the library's account of a region, in bytes of each bank.
type allocatorView struct {
	Banks            uint32 `json:"banks"`
	BytesPerBank     uint64 `json:"bytes_per_bank"`
	AllocatedPerBank uint64 `json:"allocated_per_bank"`
}

// heldProgram is held.py, a program that allocates buffers and waits.
type heldProgram struct {
	pid     int
	readers *host.Readers
	library *Library
	bias    uint64
	chips   []int
	regions map[string]allocatorView
}

// startHeld starts held.py and waits until it has allocated its buffers.
func startHeld(t *testing.T, version string, board rig.Board, args ...string) *heldProgram {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("reading another process's memory needs root")
	}
	env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: "3.10", Progress: os.Stderr})
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(tracetest.Programs(t), "held.py")
	dir := t.TempDir()
	checkpoints := filepath.Join(dir, "checkpoints")
	rows, cols := board.MeshShape()
	p := &tracetest.Program{Cmd: env.Command(context.Background(), board, append([]string{path}, args...)...)}
	p.Dir = dir
	p.Env = append(p.Env, fmt.Sprintf("TTMEM_MESH=%dx%d", rows, cols), "TTMEM_CHECKPOINTS="+checkpoints, "PYTHONUNBUFFERED=1")
	var stderr bytes.Buffer
	p.Stderr = &stderr
	in, err := p.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := p.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(p.Start()))
	t.Cleanup(func() {
		in.Close()
		p.Process.Kill()
		p.Wait()
	})
	line := make([]byte, 64)
	n, err := out.Read(line)
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", stderr.String()))
	qt.Assert(t, qt.IsTrue(strings.HasPrefix(string(line[:n]), "holding")))
	if stderr.Len() > 0 {
		t.Log(strings.TrimSpace(stderr.String())) // failed allocations
	}

	h := &heldProgram{pid: p.Process.Pid, readers: host.NewReaders()}
	t.Cleanup(h.readers.Close)
	h.library, h.bias = openMappedLibrary(t, h.pid)
	text, err := os.ReadFile(checkpoints)
	qt.Assert(t, qt.IsNil(err))
	var c struct {
		Devices []struct {
			Chips   []int                    `json:"chips"`
			Regions map[string]allocatorView `json:"regions"`
		} `json:"devices"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(text, &c)))
	h.chips, h.regions = c.Devices[0].Chips, c.Devices[0].Regions
	return h
}

// openMappedLibrary reads the library that a process maps.
func openMappedLibrary(t *testing.T, pid int) (*Library, uint64) {
	t.Helper()
	maps, err := new(host.Proc).FileMappings(pid)
	qt.Assert(t, qt.IsNil(err))
	for _, m := range maps {
		f, err := new(host.Proc).OpenMapped(pid, m.Start, m.End)
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { f.Close() })
		info, err := f.Stat()
		qt.Assert(t, qt.IsNil(err))
		l, err := OpenLibrary(f, info.Size(), m.Path, os.Open, func() {})
		if err == nil {
			return l, l.Bias(m.Start, m.Offset)
		}
		if !strings.HasSuffix(m.Path, ".so") {
			continue
		}
		qt.Assert(t, qt.ErrorIs(err, layout.ErrNoLibrary), qt.Commentf("%s", m.Path))
	}
	t.Fatal("the process maps no tt-metal library")
	return nil, 0
}

// readObjects is what was read.
type readObjects struct {
	devices []Device
	buffers []Buffer
}

func (h *heldProgram) read(t *testing.T) (read readObjects) {
	t.Helper()
	start := time.Now()
	err := h.library.Read(context.Background(), h.readers.Of(h.pid), h.bias, func(d Device, list []Buffer) {
		read.devices = append(read.devices, d)
		read.buffers = append(read.buffers, list...)
	})
	t.Logf("%d devices and %d buffers read in %v", len(read.devices), len(read.buffers), time.Since(start))
	qt.Assert(t, qt.IsNil(err))
	return read
}

var regionsByName = map[string]event.Region{"DRAM": event.DRAM, "L1": event.L1, "L1_SMALL": event.L1Small, "TRACE": event.Trace}

// check compares what was read with the library's account; extra is what may have been
// allocated since, in bytes of each bank of DRAM.
func (h *heldProgram) check(t *testing.T, read readObjects, extra uint64) {
	t.Helper()
	var open []Device
	for _, d := range read.devices {
		if d.Allocator != 0 {
			open = append(open, d)
		}
	}
	qt.Assert(t, qt.HasLen(open, 1), qt.Commentf("%+v", read.devices))
	qt.Check(t, qt.IsTrue(open[0].Mesh))
	qt.Check(t, qt.DeepEquals(open[0].Chips, h.chips))
	for name, want := range h.regions {
		region := regionsByName[name]
		got := open[0].Banks[region]
		qt.Check(t, qt.Equals(got.BytesPerBank, want.BytesPerBank), qt.Commentf("%s", name))
		if want.BytesPerBank > 0 {
			qt.Check(t, qt.Equals(got.Banks, want.Banks), qt.Commentf("%s", name))
		}
		var sum uint64
		for _, b := range read.buffers {
			if b.Region == region {
				sum += b.BytesPerBank
			}
		}
		most := want.AllocatedPerBank
		if region == event.DRAM {
			most += extra
		}
		qt.Check(t, qt.IsTrue(sum >= want.AllocatedPerBank && sum <= most),
			qt.Commentf("%s: %d B of each bank read, the library counts %d", name, sum, want.AllocatedPerBank))
	}
	for _, b := range read.buffers {
		e := b.Event()
		qt.Check(t, qt.Equals(b.Allocator, open[0].Allocator))
		qt.Check(t, qt.IsTrue(e.SizeBytes <= e.BytesPerBank*uint64(e.Banks)), qt.Commentf("%+v", e))
		qt.Check(t, qt.IsTrue(e.BeforeAttach && e.Object != 0 && e.BufferID != 0))
	}
}

// TestHasMadeNone: a process that maps the library, and has opened no device, has made no Buffer.
func TestHasMadeNone(t *testing.T) {
	for _, version := range []string{"0.81.1", "0.76.0", "0.72.0", "0.68.0"} {
		if !tracetest.Tests(version) {
			continue
		}
		env, err := rig.Setup(context.Background(), rig.Options{Version: version, Python: "3.10", Progress: os.Stderr})
		qt.Assert(t, qt.IsNil(err))
		p := env.Command(context.Background(), rig.N150, "-c", "import ttnn; print('imported', flush=True); input()")
		_, err = p.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
		out, err := p.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(p.Start()))
		said := bufio.NewScanner(out)
		for said.Scan() && said.Text() != "imported" {
		}
		library, bias := openMappedLibrary(t, p.Process.Pid)
		readers := host.NewReaders()
		qt.Check(t, qt.IsTrue(library.HasMadeNone(context.Background(), readers.Of(p.Process.Pid), bias)), qt.Commentf("%s", version))
		readers.Close()
		p.Process.Kill()
		p.Wait()
	}
}

func TestLiveBuffersEqualAllocator(t *testing.T) {
	for _, c := range []struct {
		version string
		board   rig.Board
	}{
		{"0.81.1", "n150"}, {"0.81.1", "t3000"},
		{"0.76.0", "n150"}, {"0.76.0", "t3000"},
		{"0.72.0", "n150"}, {"0.72.0", "t3000"},
		{"0.68.0", "n150"}, {"0.68.0", "t3000"},
	} {
		if !tracetest.Tests(c.version) {
			continue
		}
		t.Run(c.version+"/"+string(c.board), func(t *testing.T) {
			h := startHeld(t, c.version, c.board)
			read := h.read(t)
			h.check(t, read, 0)
			qt.Check(t, qt.IsFalse(h.library.HasMadeNone(context.Background(), h.readers.Of(h.pid), h.bias)))
			sharded := 0
			for _, b := range read.buffers {
				if b.Layout.Sharded() {
					sharded++
				}
			}
			qt.Check(t, qt.IsTrue(sharded >= 7), qt.Commentf("%d sharded", sharded))
		})
	}
}

func TestTenThousandLiveBuffers(t *testing.T) {
	h := startHeld(t, "0.81.1", "n150", "10000")
	read := h.read(t)
	h.check(t, read, 0)
	qt.Check(t, qt.IsTrue(len(read.buffers) >= 10000))
}

func TestLiveBuffersOfBusyProcess(t *testing.T) {
	h := startHeld(t, "0.81.1", "n150", "2000", "busy")
	always := make(map[uint64]int)
	const readings = 20
	for range readings {
		read := h.read(t)
		h.check(t, read, 1<<20)
		seen := make(map[uint64]bool)
		for _, b := range read.buffers {
			qt.Check(t, qt.IsFalse(seen[b.ID]), qt.Commentf("buffer %d was read twice", b.ID))
			seen[b.ID] = true
			always[b.ID]++
		}
	}
	maps.DeleteFunc(always, func(_ uint64, n int) bool { return n < readings })
	qt.Check(t, qt.HasLen(always, 2017)) // permanent buffers are found each time
}

func TestReadEndedProcess(t *testing.T) {
	h := startHeld(t, "0.81.1", "n150")
	p, err := os.FindProcess(h.pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(p.Kill()))
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { return h.readers.HasNoMemory(h.pid) && host.Ended(h.pid) })))
	err = h.library.Read(context.Background(), h.readers.Of(h.pid), h.bias, func(Device, []Buffer) { t.Error("found something") })
	qt.Check(t, qt.IsTrue(errors.Is(err, host.ErrGone)), qt.Commentf("%v", err))
}
