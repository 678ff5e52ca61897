package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"github.com/klauspost/compress/zstd"

	"ttmem/aggregate"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// seed is the seed of the damage to recordings.
var seed = flag.Uint64("seed", 1, "the seed of the damage to recordings")

// hostileName is what a name may do to a terminal, a list of lines, a page and a document.
const hostileName = "\x1b[31mred\x1b]0;title\x07\r\n" + forged + "\n\u202eoverride\u2066\u009b31m\u2028\x7f\b" +
	`<script>alert(1)</script>"'&;|,` + "\x9b\xff"

// writeRecording writes a recording in which each name is a given one.
func writeRecording(t *testing.T, path, name string, checkpoints int) {
	t.Helper()
	writeRecordingIn(t, path, name, name, checkpoints)
}

// writeRecordingIn is writeRecording of processes in a container, or in none.
func writeRecordingIn(t *testing.T, path, container, name string, checkpoints int) {
	t.Helper()
	state := aggregate.New()
	file, err := recording.Create(path, recording.FileOptions{
		Header: &recording.Header{
			Created: time.Unix(1e9, 0), MonotonicNs: 1, Host: name, Kernel: name, Ttmem: name, Recording: 1,
		},
		Checkpoint: func() func() *event.Event { return state.Freeze(nil) }, CheckpointEvents: checkpoints,
	})
	qt.Assert(t, qt.IsNil(err))
	state.Begin(1)
	now := uint64(1)
	add := func(e event.Event) {
		now += 1e6
		e.TimeNs, e.TID, e.Comm = now, max(e.TID, e.PID), name
		state.Complete(&e)
		state.Apply(&e)
		file.Add(&e)
		qt.Assert(t, qt.IsNil(file.Flush()))
		qt.Assert(t, qt.IsNil(file.Settle())) // so that checkpoints are always at the same place
	}
	stack := func(i int) *event.Stack {
		return event.StackOf([]event.Frame{
			{Kind: event.Native, Name: name, Symbol: name, Module: name, Path: "/" + name, BuildID: name, Address: uint64(i)},
			{Kind: event.Python, Name: fmt.Sprint(name, i%7), Symbol: name, File: "/" + name + ".py", Line: i},
		})
	}
	for pid := 7; pid < 9; pid++ {
		add(event.Event{Kind: event.ProcessStart, PID: pid, Start: &event.Start{Command: name, Library: "/" + name, Release: name, Container: container, Pod: container}, UID: 1000})
		capacities := [event.BankedRegions]event.Capacity{}
		for i := range capacities {
			capacities[i] = event.Capacity{Banks: 12, BytesPerBank: 1 << 20, Base: 1024}
		}
		add(event.Event{Kind: event.DeviceOpen, PID: pid, Devices: []int{0, 1}, Allocator: 77, Open: &event.Open{Board: name, Arch: name, Capacities: capacities}})
		for i := range 60 {
			region := event.Region(i % 2)
			add(event.Event{
				Kind: event.Alloc, PID: pid, Devices: []int{0, 1}, Region: region, BufferID: uint64(i), Object: uint64(i*64 + 64), Allocator: 77,
				Address: uint64(1024 + i*4096), SizeBytes: 40960, PageSizeBytes: 2048, BytesPerBank: 4096, Banks: 12, Stack: stack(i % 9),
			})
			if i%3 == 0 {
				add(event.Event{Kind: event.Free, PID: pid, Devices: []int{0, 1}, Region: region, BufferID: uint64(i), Object: uint64(i*64 + 64),
					Allocator: 77, Address: uint64(1024 + i*4096), SizeBytes: 40960, BytesPerBank: 4096, Banks: 12, Reason: event.ReasonExplicit})
			}
			if i%20 == 5 {
				add(event.Event{Kind: event.Mark, Cause: fmt.Sprint(name, i), UID: 1000})
				add(event.Event{Kind: event.CBAlloc, PID: pid, Devices: []int{0}, Region: event.CB, ProgramID: uint64(i), Address: 1 << 17, SizeBytes: 4096,
					Cores: []event.CoreRange{{X1: 3, Y1: 3}}, StaticKind: event.CircularBuffer, Stack: stack(i)})
				add(event.Event{Kind: event.KernelLoad, PID: pid, Devices: []int{0}, Region: event.Kernel, ProgramID: uint64(i), SizeBytes: 4096, BytesPerBank: 512, Stack: stack(i)})
				add(event.Event{Kind: event.AllocFailed, PID: pid, Devices: []int{0}, Region: event.DRAM, Allocator: 77, SizeBytes: 1 << 30, BytesPerBank: 1 << 27,
					Banks: 12, Reason: event.ReasonOutOfMemory, Message: name, Stack: stack(i)})
				add(event.Event{Kind: event.Lost, PID: pid, Count: 3, Cause: name})
			}
		}
	}
	add(event.Event{Kind: event.ProcessExit, PID: 7, ExitStatus: 9})
	qt.Assert(t, qt.IsNil(file.Close(recording.End{TimeNs: now, HasStacks: true, Taken: 3, Incomplete: map[string]uint64{name: 1},
		Python: 2, IncompletePython: map[string]uint64{name: 1}})))
}

// views are the viewing commands by what they write: FILE is the recording, OUT a new file.
var views = map[string][]string{
	"pages": {
		"report FILE", "dump FILE", "dump FILE --by component", "dump FILE --at peak", "leaks FILE", "leaks FILE --from begin",
		"leaks FILE --by process", "peak FILE", "map FILE", "map FILE --at peak", "ops FILE", "oom FILE", "log FILE", "log FILE --stacks",
		"diff FILE FILE", "diff FILE --from begin", "top FILE --once",
	},
	"JSON": {
		"report FILE --json", "dump FILE --json", "leaks FILE --json --from begin", "peak FILE --json", "map FILE --json",
		"ops FILE --json", "oom FILE --json", "log FILE --json", "diff FILE --from begin --json",
	},
	"web page":      {"html FILE -o OUT"},
	"folded stacks": {"export FILE --to folded -o OUT"},
	"pprof":         {"export FILE --to pprof -o OUT"},
}

// damagedViews are those of a damaged recording: each command and each kind of file once.
var damagedViews = slices.Concat([]string{
	"report FILE", "dump FILE", "leaks FILE", "peak FILE", "map FILE", "ops FILE", "oom FILE", "log FILE --stacks",
	"log FILE --json", "diff FILE FILE", "top FILE --once", "dump FILE --at peak",
}, views["web page"], views["folded stacks"], views["pprof"])

// seen is what a viewing command did.
type seen struct {
	stdout, stderr, file []byte
	status               int
	took                 time.Duration
	resident             int64
	killed               bool
}

// show runs a viewing command as an ordinary user.
func show(u *user, command, file, out string) seen {
	var args []string
	for _, word := range strings.Fields(command) {
		switch word {
		case "FILE":
			word = file
		case "OUT":
			word = out
		}
		args = append(args, word)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute*patience)
	defer cancel()
	as := u.command(ttmem, args...)
	cmd := exec.CommandContext(ctx, ttmem, args...)
	cmd.Dir, cmd.Env, cmd.SysProcAttr = as.Dir, as.Env, as.SysProcAttr
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	_ = cmd.Run()
	s := seen{stdout: stdout.Bytes(), stderr: stderr.Bytes(), status: -1, took: time.Since(began), killed: ctx.Err() != nil}
	if cmd.ProcessState != nil {
		s.status = cmd.ProcessState.ExitCode()
		s.resident = cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	}
	s.file, _ = os.ReadFile(out)
	os.Remove(out)
	return s
}

// TestHostileNamesInRecordings: no view of a recording writes a control character, a
// bidirectional override or a line that a name has made up.
func TestHostileNamesInRecordings(t *testing.T) {
	u := newUser(t, 5)
	file := filepath.Join(public, "names.ttmem")
	writeRecording(t, file, hostileName, 40)
	qt.Assert(t, qt.IsNil(os.Chmod(file, 0o644)))
	for kind, commands := range views {
		t.Run(kind, func(t *testing.T) {
			var failures []string
			for _, command := range commands {
				s := show(u, command, file, filepath.Join(u.home, "out"))
				if s.status != 0 {
					failures = append(failures, fmt.Sprintf("%s: status %d: %.300s", command, s.status, s.stderr))
				}
				if kind == "pprof" {
					s.file = nil // is not for a terminal
				}
				for where, text := range map[string][]byte{"standard output": s.stdout, "standard error": s.stderr, "the file": s.file} {
					if why := unclean(text); why != "" {
						failures = append(failures, fmt.Sprintf("%s: %s has %s", command, where, why))
					}
				}
				if kind == "web page" && bytes.Contains(s.file, []byte("<script>alert(1)")) {
					failures = append(failures, "the page has a name's script")
				}
			}
			report(t, "names in "+kind, failures)
		})
	}
}

// TestDamagedRecordings: whatever is wrong with a recording, a view of it ends with a result or
// one line, without a crash, in a few seconds and with little memory.
func TestDamagedRecordings(t *testing.T) {
	u := newUser(t, 6)
	var sources [][]byte
	for i, name := range []string{"plain", hostileName} {
		path := filepath.Join(public, fmt.Sprintf("source%d.ttmem", i))
		writeRecording(t, path, name, 25)
		text, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		sources = append(sources, text)
	}
	const each = 2 // views of each recording; all views take turns
	count := 120
	if *tracetest.Long {
		count = 10000
	}
	work := make(chan int)
	var working sync.WaitGroup
	for range runtime.NumCPU() {
		working.Go(func() {
			for i := range work {
				dice := rand.New(rand.NewPCG(*seed, uint64(i)))
				file := filepath.Join(public, fmt.Sprintf("damaged%d.ttmem", i))
				if err := os.WriteFile(file, damage(dice, sources[i%len(sources)]), 0o644); err != nil {
					t.Error(err)
					continue
				}
				kept := false
				for n := range each {
					command := damagedViews[(i*each+n)%len(damagedViews)]
					s := show(u, command, file, filepath.Join(u.home, fmt.Sprintf("out%d", i)))
					why := ""
					switch {
					case s.killed:
						why = "does not end"
					case s.status != 0 && s.status != 1 && s.status != 3:
						why = fmt.Sprintf("ends with status %d", s.status)
					case tracetest.IsLate(s.took, 5*time.Second):
						why = fmt.Sprintf("takes %v", s.took)
					case s.resident > residentLimit:
						why = fmt.Sprintf("takes %d MiB", s.resident>>20)
					case bytes.Contains(s.stderr, []byte("goroutine ")):
						why = "panics"
					}
					if why != "" {
						kept = true
						t.Errorf("-seed %d, recording %d: %s %s: %.2000s", *seed, i, command, why, s.stderr)
					}
				}
				if kept {
					t.Logf("recording %d: %s", i, file)
				}
				os.Remove(file)
			}
		})
	}
	for i := range count {
		if i > 0 && i%1000 == 0 {
			t.Logf("%d recordings", i)
		}
		work <- i
	}
	close(work)
	working.Wait()
}

// TestExpandingRecordings: a recording of some KB that claims to have hundreds of MB is an error of every view,
// which takes little memory.
func TestExpandingRecordings(t *testing.T) {
	u := newUser(t, 12)
	path := filepath.Join(public, "expanding.ttmem")
	writeRecording(t, path, "plain", 0)
	b, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	const headBytes, most = 40, 8 << 20 // of a block
	encoder, err := zstd.NewWriter(nil)
	qt.Assert(t, qt.IsNil(err))
	first := bytes.Index(b, []byte("TTMb"))
	for first >= 0 && b[first+8] != 'D' { // to the first block of events
		first += 1 + bytes.Index(b[first+1:], []byte("TTMb"))
	}
	for _, kind := range []byte{'D', 'c'} { // events, and a checkpoint
		payload := encoder.EncodeAll(make([]byte, most), nil)
		head := bytes.Clone(b[first : first+headBytes])
		head[8], head[9] = kind, 0
		binary.LittleEndian.PutUint32(head[12:], uint32(len(payload)))
		binary.LittleEndian.PutUint32(head[16:], most)
		binary.LittleEndian.PutUint32(head[4:], crc32.Checksum(append(bytes.Clone(head[8:]), payload...), crc32.MakeTable(crc32.Castagnoli)))
		bomb := bytes.Clone(b[:first])
		for range 60 {
			bomb = append(append(bomb, head...), payload...)
		}
		qt.Assert(t, qt.IsTrue(len(bomb) < 64<<10), qt.Commentf("%d", len(bomb)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, bomb, 0o644)))
		for _, command := range damagedViews {
			s := show(u, command, path, filepath.Join(u.home, "out"))
			about := qt.Commentf("%c: %s: %v, %d MiB: %s", kind, command, s.took, s.resident>>20, s.stderr)
			qt.Check(t, qt.Equals(s.status, 1), about)
			qt.Check(t, qt.StringContains(string(s.stderr), "expands too much"), about)
			qt.Check(t, qt.IsTrue(s.resident < residentLimit), about)
			qt.Check(t, qt.IsFalse(tracetest.IsLate(s.took, 5*time.Second)), about)
		}
	}
}

// TestRepeatingRecordings: a recording of some KB whose few bytes repeat a long name, or a deep stack, for hundreds of
// MB of text costs every view little memory.
func TestRepeatingRecordings(t *testing.T) {
	u := newUser(t, 15)
	path := filepath.Join(public, "repeating.ttmem")
	const deep = 2048
	for name, of := range map[string]struct {
		stacks int
		frame  event.Frame
	}{
		"Python names": {1, event.Frame{Kind: event.Python, Name: strings.Repeat("n", 32<<10), File: "/a.py"}},
		"native names": {1, event.Frame{Kind: event.Native, Name: strings.Repeat("n", 32<<10), Module: "m"}},
		"deep stacks":  {400, event.Frame{Kind: event.Python, Name: "f", File: "/a.py"}},
	} {
		var out bytes.Buffer
		w, err := recording.NewWriter(&out, recording.Header{Created: time.Unix(1e9, 0), MonotonicNs: 1, Recording: 1})
		qt.Assert(t, qt.IsNil(err))
		first := out.Len()
		for i := range of.stacks {
			frames := slices.Repeat([]event.Frame{of.frame}, deep)
			for line := range frames {
				frames[line].Line = line
			}
			frames[0].Line = deep + i
			w.Add(&event.Event{
				Kind: event.Alloc, TimeNs: uint64(i + 1), PID: 7, TID: 7, Devices: []int{0}, Region: event.DRAM, BufferID: uint64(i), Object: uint64(i*64 + 64),
				Address: uint64(4096 * i), SizeBytes: 4096, PageSizeBytes: 4096, BytesPerBank: 4096, Banks: 1, Stack: event.StackOf(frames),
			})
		}
		qt.Assert(t, qt.IsNil(w.Flush()))
		b := withoutPadding(out.Bytes(), first)
		qt.Assert(t, qt.IsTrue(len(b) < 16<<10), qt.Commentf("%d", len(b)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o644)))
		for _, command := range damagedViews {
			s := show(u, command, path, filepath.Join(u.home, "out"))
			about := qt.Commentf("%s: %s: %v, %d MiB: %.300s", name, command, s.took, s.resident>>20, s.stderr)
			qt.Check(t, qt.StringContains(string(s.stderr)+string(s.stdout), "its events make no sense"), about)
			qt.Check(t, qt.IsTrue(s.resident < residentLimit), about)
			qt.Check(t, qt.IsFalse(tracetest.IsLate(s.took, 5*time.Second)), about)
		}
	}
}

// withoutPadding returns a recording whose only block, at an offset, has no padding.
func withoutPadding(b []byte, block int) []byte {
	const headBytes = 40
	if at := bytes.LastIndex(b, []byte{0x50, 0x2a, 0x4d, 0x18}); at > 0 { // a skippable frame of zstd
		b = bytes.Clone(b[:at])
	}
	binary.LittleEndian.PutUint32(b[block+12:], uint32(len(b)-block-headBytes))
	binary.LittleEndian.PutUint32(b[block+4:], crc32.Checksum(b[block+8:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// damage returns a damaged copy of a recording.
func damage(dice *rand.Rand, source []byte) []byte {
	b := bytes.Clone(source)
	for n := 1 + dice.IntN(4); n > 0 && len(b) > 0; n-- {
		at := dice.IntN(len(b))
		n := min(1+dice.IntN(64), len(b)-at)
		switch dice.IntN(7) {
		case 0: // other bytes
			for i := range n {
				b[at+i] = byte(dice.Uint32())
			}
		case 1: // one bit
			b[at] ^= 1 << dice.IntN(8)
		case 2: // the largest number
			for i := range min(n, 9) {
				b[at+i] = 0xff
			}
		case 3: // something is missing
			b = append(b[:at:at], b[at+n:]...)
		case 4: // something is there twice
			b = append(b[:at+n:at+n], b[at:]...)
		case 5: // it is cut short
			if dice.IntN(4) == 0 {
				b = b[:min(max(at, 16), len(b))]
			}
		case 6: // in the beginning, where the header is
			b[dice.IntN(min(len(b), 200))] = byte(dice.Uint32())
		}
	}
	return b
}
