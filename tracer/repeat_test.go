package tracer

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/kernel"
)

// repeatProgram builds and starts a program that calls probed as often as its input says.
func repeatProgram(t *testing.T, n int) (list []*tracetest.Program, exe string) {
	t.Helper()
	tracetest.NeedsRoot(t)
	exe = filepath.Join(t.TempDir(), "repeat")
	compile(t, "gcc", exe, "-fomit-frame-pointer", "repeat.c")
	for range n {
		list = append(list, tracetest.Start(t, exe))
	}
	return list, exe
}

// A process that writes more than is read leaves room in the ring buffer for others: it loses
// records, and they lose none.
func TestLoudProcess(t *testing.T) {
	const most, some = 800_000, 10_000
	programs, exe := repeatProgram(t, 2)
	loud, quiet := programs[0], programs[1]
	trace := traceStacks(t, loud.Process.Pid, exe, "probed", Options{Children: true, NoStacks: true})
	_, err := trace.objs.AddProcess(quiet.Process.Pid, 0)
	qt.Assert(t, qt.IsNil(err))
	trace.mu.Lock() // so that no more records are read
	loud.Do(t, "call %d", most)
	quiet.Do(t, "call %d", some)
	trace.mu.Unlock()
	seen := func(p *tracetest.Program) (n int) {
		for _, c := range trace.seen() {
			if c.tid == p.Process.Pid {
				n++
			}
		}
		return n
	}
	for deadline := time.Now().Add(time.Minute); seen(quiet) < some && time.Now().Before(deadline); {
		time.Sleep(pollInterval)
	}
	trace.stop()
	t.Logf("%d of %d records of the loud process", seen(loud), most)
	qt.Check(t, qt.Equals(seen(quiet), some))
	qt.Check(t, qt.IsTrue(seen(loud) > most/4))
	qt.Check(t, qt.IsTrue(seen(loud) < most))
}

// A stack for which the ring buffer had no room is whole when it comes again and there is room.
func TestStackAgainAfterAFullRing(t *testing.T) {
	const full, some = "ring buffer full", 10
	programs, exe := repeatProgram(t, 1)
	p := programs[0]
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	without := func() uint64 {
		ends, _ := trace.StackEnds()
		return ends[full]
	}
	trace.mu.Lock() // so that no more records are read
	readOn := sync.OnceFunc(trace.mu.Unlock)
	defer readOn()
	for tries := 0; without() == 0; tries++ {
		qt.Assert(t, qt.IsTrue(tries < 20))
		p.Do(t, "spread 50000")
	}
	before := without()
	p.Do(t, "call %d", some)
	qt.Assert(t, qt.Equals(without(), before+some))
	readOn()
	trace.settle()
	p.Do(t, "call %d", some)
	qt.Check(t, qt.Equals(without(), before+some))
	calls := trace.stop()
	for _, c := range calls[len(calls)-some:] {
		qt.Check(t, qt.HasLen(named(c.stack.Frames()), 4), qt.Commentf("%v", all(c.stack.Frames())))
	}
}

// A stack that differs from the last one is not taken for it because its pages are others now, and the old ones have
// what they had.
func TestStackInOtherPages(t *testing.T) {
	const ways = 20
	programs, exe := repeatProgram(t, 1)
	p := programs[0]
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	p.Do(t, "apart %d", ways)
	times := make(map[uint64]int)
	for _, c := range trace.stop() {
		times[c.ids.Native]++
	}
	qt.Check(t, qt.HasLen(times, ways))
	for _, n := range times {
		qt.Check(t, qt.Equals(n, 2))
	}
}

// The native part of a stack that repeats is compared.
func TestRepeatedStackIsCompared(t *testing.T) {
	programs, exe := repeatProgram(t, 1)
	trace := traceStacks(t, programs[0].Process.Pid, exe, "probed", Options{})
	programs[0].Do(t, "call 5")
	trace.assertCompared(t, "words")
}

// assertCompared checks that the last stack of the process's first thread was not read: the kernel side has compared a part's
// words, whose places in its memory it has found for that.
func (s *stackTrace) assertCompared(t *testing.T, words ...string) {
	t.Helper()
	spec, err := bpf.LoadKernel()
	qt.Assert(t, qt.IsNil(err))
	unwinder, err := s.objs.Unwinders.LookupBytes(uint32(s.pid))
	qt.Assert(t, qt.IsNil(err))
	member := func(names ...string) uint64 {
		at, ok := offsetOf(spec.Maps[bpf.KernelMapUnwinders].Value, names)
		qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%v", names))
		return binary.NativeEndian.Uint64(unwinder[at:])
	}
	for _, f := range kernel.OptionalFeatures() {
		if f.Name == "direct_map" && !f.OK {
			t.Skip("ttmem cannot use the direct map: " + f.Detail)
		}
	}
	forgotten := member("memory", "forgotten")
	qt.Check(t, qt.IsTrue(forgotten > 0))
	qt.Check(t, qt.Equals(member(append(words, "placed")...), forgotten))
}

// offsetOf returns where a structure has a member of a member, of which some have no name.
func offsetOf(in btf.Type, names []string) (at uint32, ok bool) {
	if len(names) == 0 {
		return 0, true
	}
	var members []btf.Member
	switch of := btf.UnderlyingType(in).(type) {
	case *btf.Struct:
		members = of.Members
	case *btf.Union:
		members = of.Members
	}
	for _, m := range members {
		rest := names
		if m.Name == names[0] {
			rest = names[1:]
		} else if m.Name != "" {
			continue
		}
		if at, ok := offsetOf(m.Type, rest); ok {
			return m.Offset.Bytes() + at, true
		}
	}
	return 0, false
}

// A program with more different stacks than the tables hold has a complete one at each call.
func TestMoreStacksThanTheTablesHold(t *testing.T) {
	const batch, batches = 20_000, 8
	programs, exe := repeatProgram(t, 1)
	p := programs[0]
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	for i := range batches {
		p.Do(t, "spread %d", batch)
		for deadline := time.Now().Add(time.Minute); len(trace.seen()) < (i+1)*batch && time.Now().Before(deadline); {
			time.Sleep(pollInterval) // so that the ring buffer has room
		}
	}
	different, wrong := make(map[uint64]bool), 0
	for _, c := range trace.stop() {
		different[c.ids.Native] = true
		if frames := c.stack.Frames(); !begins(frames) || len(named(frames)) != 23 {
			if wrong++; wrong < 3 {
				t.Errorf("%v", all(frames))
			}
		}
	}
	t.Log(trace.StackEnds())
	qt.Check(t, qt.Equals(wrong, 0))
	qt.Check(t, qt.IsTrue(len(different) >= batches*batch))
}

// A stack in memory that is not in the kernel's map of physical memory is read all the same.
func TestStackInSecretMemory(t *testing.T) {
	programs, exe := repeatProgram(t, 1)
	p := programs[0]
	trace := traceStacks(t, p.Process.Pid, exe, "probed", Options{})
	if p.Do(t, "secret 3") == "-1" {
		t.Skip("no secret memory")
	}
	for _, c := range trace.stop() {
		var names []string
		for _, f := range c.stack.Frames() {
			names = append(names, f.Symbol)
		}
		qt.Check(t, qt.DeepEquals(names[:min(3, len(names))], []string{"probed", "repeat", "caller"}))
	}
	qt.Check(t, qt.HasLen(trace.stop(), 3))
}

// state is what /proc says a program does: R, S, t when a debugger has stopped it.
func state(t *testing.T, p *tracetest.Program) byte {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Process.Pid))
	qt.Assert(t, qt.IsNil(err))
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[0]
}

func waitForState(t *testing.T, p *tracetest.Program, want byte) {
	t.Helper()
	qt.Assert(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { return state(t, p) == want })))
}

// A program with a debugger's breakpoint on a probed instruction goes on correctly when the one
// that came last, tracer or debugger, ends first or last.
func TestBreakpointAtProbe(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gdb"); err != nil {
		t.Skip("no gdb")
	}
	for _, test := range []struct {
		name                           string
		debuggerFirst, debuggerOutlast bool
	}{
		{"tracer within debugger", true, true},
		{"tracer outlasts debugger", true, false},
		{"debugger within tracer", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			programs, exe := repeatProgram(t, 1)
			p := programs[0]
			var trace *stackTrace
			attach := func() {
				trace = traceStacks(t, p.Process.Pid, exe, "probed", Options{NoStacks: true})
			}
			if !test.debuggerFirst {
				attach()
			}
			gdb := exec.Command("gdb", "-nx", "-batch", "-p", strconv.Itoa(p.Process.Pid),
				"-ex", "break *probed", "-ex", `python print("attached", flush=True)`, "-ex", "continue", "-ex", "detach")
			out, err := gdb.StdoutPipe()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(gdb.Start()))
			t.Cleanup(func() { gdb.Process.Kill() })
			said := bufio.NewReader(out)
			for line := ""; line != "attached\n"; {
				line, err = said.ReadString('\n')
				qt.Assert(t, qt.IsNil(err))
			}
			waitForState(t, p, 'S') // gdb lets it go on
			if test.debuggerFirst {
				attach()
			}
			p.Tell(t, "call 1")
			answer := make(chan string, 1)
			go func() {
				line, _ := p.Out.ReadString('\n')
				answer <- line
			}()
			// it answers, or the debugger stops it
			tracetest.Eventually(time.Minute, func() bool { return len(answer) > 0 || state(t, p) == 't' })
			if test.debuggerOutlast {
				trace.close()
			}
			gdb.Process.Signal(unix.SIGINT)
			_, _ = io.Copy(io.Discard, said)
			_ = gdb.Wait()
			qt.Check(t, qt.Equals(<-answer, "1\n"))
			qt.Check(t, qt.Equals(p.Do(t, "call 10"), "55"))
			trace.close()
			qt.Check(t, qt.Equals(p.Do(t, "call 10"), "55"))
		})
	}
}

// A user has a quarter of the table of processes. Others are not traced, and their losses count
// for them; a process that ends makes room.
func TestProcessesOfAUser(t *testing.T) {
	const most = uint32(bpf.ProcessesAUser)
	u := startTenant(t, "probed", 31)
	var process bpf.KernelProcess
	first, pid := u.begin(t)
	qt.Assert(t, qt.IsNil(u.objs.Processes.Lookup(pid, &process)))
	qt.Check(t, qt.Equals(process.User, u.id))
	u.change(t, func(k *bpf.KernelUser) {
		qt.Check(t, qt.Equals(k.Processes, 1))
		k.Processes = most
	})

	_, refused := u.begin(t)
	qt.Check(t, qt.ErrorIs(u.objs.Processes.Lookup(refused, &process), ebpf.ErrKeyNotExist))
	qt.Check(t, qt.DeepEquals(u.losses(t), []bpf.KernelLossKey{
		{Tgid: refused, Cause: uint32(bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES)},
	}))

	qt.Assert(t, qt.IsNil(first.Process.Kill()))
	_, _ = first.Process.Wait()
	u.change(t, func(k *bpf.KernelUser) { qt.Check(t, qt.Equals(k.Processes, most-1)) })
	_, next := u.begin(t)
	qt.Check(t, qt.IsNil(u.objs.Processes.Lookup(next, &process)))
}

// A user has a share of the table of losses until it is taken out. Beyond it, losses of all the
// user's processes are counted together.
func TestLossesOfAUser(t *testing.T) {
	u := startTenant(t, "probed", 31)
	u.begin(t)
	u.change(t, func(k *bpf.KernelUser) {
		k.Processes = uint32(bpf.ProcessesAUser) // so that the next processes lose something
		k.Losses = uint32(bpf.KernelLossLimitLOSSES_A_USER) - 1
	})
	cause := uint32(bpf.KernelLostCauseLOST_TOO_MANY_PROCESSES)
	_, last := u.begin(t)
	u.begin(t)
	u.begin(t)
	qt.Check(t, qt.ContentEquals(u.losses(t), []bpf.KernelLossKey{
		{Tgid: last, Cause: cause}, {Uid: uint32(u.id), Cause: uint32(bpf.KernelLostCauseLOST_OF_USER)},
	}))
	_, next := u.begin(t)
	qt.Check(t, qt.DeepEquals(u.losses(t), []bpf.KernelLossKey{{Tgid: next, Cause: cause}}))
}

// A user has a quarter of the table of objects. Others are added meanwhile, and objects of a process
// that has ended make room.
func TestObjectsOfAUser(t *testing.T) {
	const most = uint32(bpf.KernelObjectLimitOBJECTS_A_USER)
	full := startTenant(t, "device", uint64(bpf.KernelProbePROBE_VALIDATE_CB))
	other := &tenant{full.objs, full.exe, full.id + 1}
	objects := func(pid uint32) (n int) {
		var key bpf.KernelObjectKey
		var object bpf.KernelObject
		all := full.objs.Objects.Iterate()
		for all.Next(&key, &object) {
			if key.Tgid == pid {
				n++
			}
		}
		qt.Assert(t, qt.IsNil(all.Err()))
		return n
	}
	refused := func() (pids []uint32) {
		for _, k := range full.losses(t) {
			if k.Cause == uint32(bpf.KernelLostCauseLOST_TOO_MANY_OBJECTS) {
				pids = append(pids, k.Tgid)
			}
		}
		return pids
	}

	first, pid := full.begin(t)
	first.Do(t, "devices 5")
	qt.Check(t, qt.Equals(objects(pid), 5))
	full.change(t, func(k *bpf.KernelUser) {
		qt.Check(t, qt.Equals(k.Objects, 5))
		k.Objects = most - 1
	})
	second, last := full.begin(t)
	second.Do(t, "devices 3")
	third, admitted := other.begin(t)
	third.Do(t, "devices 3")
	qt.Check(t, qt.Equals(objects(last), 1))
	qt.Check(t, qt.Equals(objects(admitted), 3))
	qt.Check(t, qt.DeepEquals(refused(), []uint32{last}))

	qt.Assert(t, qt.IsNil(first.Process.Kill()))
	_, _ = first.Process.Wait()
	_, err := full.objs.OnEnded.Run(&ebpf.RunOptions{})
	qt.Assert(t, qt.IsNil(err))
	second.Do(t, "devices 3")
	qt.Check(t, qt.Equals(objects(last), 3))
	qt.Check(t, qt.HasLen(refused(), 0))
}

// A tenant is a user whose processes hit a probe.
type tenant struct {
	objs *kernel.Objects
	exe  string
	id   uint64
}

// startTenant places a probe on a function of the program that the tenant runs.
func startTenant(t *testing.T, function string, probe uint64) *tenant {
	t.Helper()
	_, exe := repeatProgram(t, 0)
	k, err := kernel.Detect()
	qt.Assert(t, qt.IsNil(err))
	objs, err := k.Load(kernel.LoadOptions{})
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(objs.Close)
	placed, err := k.Uprobes.Place(exe, objs.OnProbe, []uint64{tracetest.MustOffset(t, exe, function)}, []uint64{probe}, 0)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { placed.Close() })
	return &tenant{objs, exe, 54321}
}

// begin starts a process of the user.
func (u *tenant) begin(t *testing.T) (*tracetest.Program, uint32) {
	t.Helper()
	p := tracetest.Start(t, "setpriv", "--reuid", strconv.FormatUint(u.id, 10), "--clear-groups", u.exe)
	p.Do(t, "call 1")
	return p, uint32(p.Process.Pid)
}

// change changes what the kernel side knows of the user.
func (u *tenant) change(t *testing.T, change func(*bpf.KernelUser)) {
	t.Helper()
	var k bpf.KernelUser
	qt.Assert(t, qt.IsNil(u.objs.Users.Lookup(u.id, &k)))
	change(&k)
	qt.Assert(t, qt.IsNil(u.objs.Users.Put(u.id, &k)))
}

// losses takes out what was lost.
func (u *tenant) losses(t *testing.T) (list []bpf.KernelLossKey) {
	t.Helper()
	qt.Assert(t, qt.IsNil(u.objs.TakeLosses(func(k bpf.KernelLossKey, _ bpf.KernelLoss) {
		qt.Check(t, qt.Equals(k.ExecId != 0, k.Tgid != 0))
		k.ExecId = 0
		list = append(list, k)
	})))
	return list
}
