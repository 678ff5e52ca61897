package e2e

import (
	"debug/elf"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/name"
	"ttmem/aggregate/words"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

var chipForm = flag.String("chip", "", "TestChip runs programs on simulated chips that execute: short or full")

// chipPrograms are the steps of e2e/programs/chip.py that run as one program.
var chipPrograms = []struct {
	name  string
	steps []string
	board rig.Board
	long  bool
}{
	{"a tile", []string{"clone", "to L1"}, rig.N150, false},
	{"tiles", []string{"clone", "from L1", "clone in L1", "to a shard", "concat", "clone"}, rig.N150, true},
	{"tiles", []string{"clone", "from L1", "clone in L1", "to a shard", "concat", "clone"}, rig.P150, true},
	{"rows", []string{"clone of rows", "slice of rows"}, rig.N150, true},
	{"rows", []string{"clone of rows", "slice of rows"}, rig.P150, true},
	// After a tilize, the simulated Wormhole unpacks the next operation's tiles wrongly.
	{"compute", []string{"untilize", "transpose", "matmul", "tilize"}, rig.N150, true},
	{"compute", []string{"untilize", "transpose", "matmul", "tilize"}, rig.P150, true},
}

// TestChip compares ttmem with a chip that executes firmware and kernels: at each checkpoint with the
// library's own allocator, and the text of each program's kernels with the ELF files that the library
// compiled. The program itself checks the contents of its results. `make chip` runs it, and prints its
// tables.
func TestChip(t *testing.T) {
	if *chipForm == "" {
		t.Skip("no -chip: make chip")
	}
	env, err := setup(t, rig.DefaultVersion, "3.10").Chip(t.Context(), os.Stderr)
	qt.Assert(t, qt.IsNil(err))
	table := chipTable{slow: true}
	defer func() { fmt.Print(table.markdown()) }()
	for _, p := range chipPrograms {
		if p.long && *chipForm != "full" {
			continue
		}
		t.Run(string(p.board)+"/"+p.name, func(t *testing.T) {
			began := time.Now()
			run := traceRun(t, env, p.board, append([]string{program(t, "chip.py")}, p.steps...)...)
			qt.Assert(t, qt.Equals(run.status, 0), qt.Commentf("%s", run.stderr))
			assertEnded(t, run.events)
			table.add(t, chipRow{board: p.board, name: p.name, how: "run"}, run.dir, run.events)
			t.Logf("%.0f s", time.Since(began).Seconds())
		})
		if p.name != "a tile" && p.name != "tiles" {
			continue
		}
		t.Run(string(p.board)+"/"+p.name+"/attached late", func(t *testing.T) {
			steps := slices.Concat([]string{program(t, "chip.py")}, p.steps, []string{"wait"}, p.steps)
			target := startTarget(t, env, p.board, steps...)
			table.add(t, chipRow{board: p.board, name: p.name, how: "attach"}, target.Dir, attachWaiting(t, target))
		})
	}
}

// attachWaiting attaches to a program of chip.py that waits, lets it go on, and returns the events up to its
// end.
func attachWaiting(t *testing.T, p *target) []event.Event {
	t.Helper()
	p.expect(t, "waiting")
	file := filepath.Join(t.TempDir(), "events.ttmem")
	attach := attachTo(t, file, p.Process.Pid)
	waitFor(t, "what was there before", func() bool {
		return count(readEvents(t, file), func(e *event.Event) bool { return e.BeforeAttach }) > 0
	})
	assertTop(t, p)
	qt.Assert(t, qt.IsNil(p.stdin.Close()))
	qt.Assert(t, qt.IsNil(p.Wait()), qt.Commentf("%s", p.stderr.String()))
	waitEnd(t, attach.Wait)
	return readEvents(t, file)
}

// assertTop compares a frame of the live view with the newest checkpoint of a waiting program.
func assertTop(t *testing.T, p *target) {
	t.Helper()
	out, err := exec.Command(ttmem, "top", "--once", "-p", strconv.Itoa(p.Process.Pid)).Output()
	qt.Assert(t, qt.IsNil(err))
	checkpoints := readCheckpoints(t, p.Dir)
	held := checkpoints[len(checkpoints)-1].Devices[0].Regions["DRAM"]
	row := slices.IndexFunc(lines(string(out)), func(line string) bool { return strings.HasPrefix(strings.TrimSpace(line), "DRAM ") })
	qt.Assert(t, qt.IsTrue(row >= 0), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(lines(string(out))[row], " "+words.Bytes(held.AllocatedPerBank*uint64(held.Banks))+" "))
}

// A chipTable has a row for each program, and one for each kernel program that it loaded.
type chipTable struct {
	slow    bool // slow dispatch
	rows    []chipRow
	kernels []kernelRow
}

type chipRow struct {
	board                                 rig.Board
	name, how                             string
	checkpoints, figures, wrong, programs int
}

// A kernelRow compares the kernels of a step's program.
type kernelRow struct {
	board             rig.Board
	step              string
	processors        []string
	text, textOfFiles uint64
	dram              uint64
}

// add compares a run and adds its rows.
func (c *chipTable) add(t *testing.T, row chipRow, dir string, events []event.Event) {
	t.Helper()
	qt.Check(t, qt.Equals(count(events, func(e *event.Event) bool { return e.Kind == event.Lost }), 0))
	checkpoints := readCheckpoints(t, dir)
	attached := 0
	if row.how == "attach" {
		at := events[slices.IndexFunc(events, func(e event.Event) bool { return e.BeforeAttach })].TimeNs
		attached = slices.IndexFunc(checkpoints, func(c checkpoint) bool { return c.TimeNs > at })
		qt.Assert(t, qt.IsTrue(attached > 0))
	}
	compared, differences := compareCheckpoints(events, checkpoints[attached:])
	for _, d := range differences {
		t.Error(d)
	}
	row.checkpoints, row.figures, row.wrong = len(checkpoints)-attached, compared, len(differences)
	qt.Check(t, qt.IsTrue(compared > 0))

	files := kernelFiles(t, dir)
	binaries := binariesIn(events)
	loaded := map[uint64]bool{}
	for _, e := range events {
		if e.Kind != event.KernelLoad {
			continue
		}
		if e.KernelKind != event.WorkerKernels { // of a command queue or of the fabric
			qt.Check(t, qt.IsFalse(c.slow))
			qt.Check(t, qt.Equals(e.SizeBytes, 0), qt.Commentf("%s: kernels without binaries in DRAM", e.KernelKind))
			delete(files, e.ProgramID)
			continue
		}
		next := slices.IndexFunc(checkpoints, func(c checkpoint) bool { return c.TimeNs > e.TimeNs })
		qt.Assert(t, qt.IsTrue(next >= 0))
		k := kernelRow{board: row.board, step: checkpoints[next].Name, text: e.BytesPerBank, dram: e.SizeBytes}
		of := files[e.ProgramID]
		k.processors = slices.Sorted(maps.Keys(of))
		for _, bytes := range of {
			k.textOfFiles += bytes
		}
		qt.Check(t, qt.Equals(k.text, k.textOfFiles), qt.Commentf("%s: text per core", k.step))
		if c.slow {
			qt.Check(t, qt.Equals(k.dram, 0), qt.Commentf("%s: slow dispatch has no binaries in DRAM", k.step))
		} else if !e.BeforeAttach {
			qt.Check(t, qt.IsTrue(binaries[k.dram]), qt.Commentf("%s: %d B of binaries, and the buffers have %v", k.step, k.dram, binaries))
		}
		loaded[e.ProgramID] = true
		if row.how == "run" {
			c.kernels = append(c.kernels, k)
		}
	}
	row.programs = len(loaded)
	qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(loaded)), slices.Sorted(maps.Keys(files))),
		qt.Commentf("programs with kernels"))
	c.rows = append(c.rows, row)
}

// binariesIn returns the sizes of the buffers with binaries of kernels.
func binariesIn(events []event.Event) map[uint64]bool {
	sizes := map[uint64]bool{}
	for _, e := range events {
		if e.Kind == event.Alloc && name.ClassOf(e.Stack.Frames(), e.Region).String() == "kernel binaries" {
			sizes[e.SizeBytes] = true
		}
	}
	return sizes
}

// kernelFiles returns what the ELF files of each program occupy on the cores of its largest kernel
// group, by processor, in a process that has ended: the library lists the files that it loads.
func kernelFiles(t *testing.T, dir string) map[uint64]map[string]uint64 {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(dir, "generated", "inspector", "kernels.yaml"))
	qt.Assert(t, qt.IsNil(err))
	programs, folder := map[uint64]map[string]uint64{}, ""
	for _, line := range lines(string(list)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch name {
		case "path":
			folder = value
		case "program_id":
			id, err := strconv.ParseUint(value, 10, 64)
			qt.Assert(t, qt.IsNil(err))
			if programs[id] == nil {
				programs[id] = map[string]uint64{}
			}
			for processor, bytes := range textIn(t, folder) {
				// kernels of several core groups: the largest one counts
				programs[id][processor] = max(programs[id][processor], bytes)
			}
		}
	}
	return programs
}

// textIn returns the text and data of a kernel's ELF files, by processor, as they lie in L1.
func textIn(t *testing.T, folder string) map[string]uint64 {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*", "*.elf"))
	qt.Assert(t, qt.IsNil(err))
	bytes := map[string]uint64{}
	for _, file := range files {
		processor := filepath.Base(filepath.Dir(file))
		if filepath.Base(file) != processor+".elf" {
			continue
		}
		f, err := elf.Open(file)
		qt.Assert(t, qt.IsNil(err))
		for _, name := range []string{".text", ".data"} {
			if section := f.Section(name); section != nil {
				bytes[processor] += section.Size
			}
		}
		f.Close()
		bytes[processor] = (bytes[processor] + 15) &^ 15
	}
	qt.Assert(t, qt.IsTrue(len(bytes) > 0), qt.Commentf("no ELF files in %s", folder))
	return bytes
}

// markdown are the tables for docs/chips.md.
func (c *chipTable) markdown() string {
	var b strings.Builder
	b.WriteString("\n| board | program | traced by | checkpoints | figures compared | wrong | programs with kernels |\n|---|---|---|--:|--:|--:|--:|\n")
	for _, r := range c.rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d |\n", r.board, r.name, r.how, r.checkpoints, r.figures, r.wrong, r.programs)
	}
	b.WriteString("\n| board | step | processors | text per core: ttmem | ELF files | in DRAM: ttmem |\n|---|---|---|--:|--:|--:|\n")
	for _, k := range c.kernels {
		fmt.Fprintf(&b, "| %s | %s | %s | %d B | %d B | %d B |\n", k.board, k.step, strings.Join(k.processors, ", "), k.text, k.textOfFiles, k.dram)
	}
	return b.String()
}
