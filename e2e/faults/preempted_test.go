package faults

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// stoppedHandlers are the functions of the kernel side in which handlers.py is to be stopped, where they read the clock for a
// record.
var stoppedHandlers = []string{
	"allocator_clear", "binaries_loaded", "buffer_allocated", "buffer_deallocate", "buffer_transferred", "cb_allocate",
	"ensure_allocator", "exception_made", "kernel_compiled", "program_gives_up", "program_runs", "report_native", "report_python",
	"report_unknown", "trace_steps",
}

// notStopped are the others of the probes that read the clock, and what they need, which handlers.py does not do often.
var notStopped = map[string]string{
	"banks_change": "sub-devices", "caught": "an exception that the library catches", "cb_mark": "dataflow buffers",
	"count_lost": "a loss", "marked": "ttmem.mark()", "program_configured": "slow dispatch", "program_enqueued": "a late attach",
	"report_code": "code that is loaded", "report_scratchpads": "scratchpads",
}

// TestStoppedHandlers: each function of the kernel side that reads the clock in a probe is in one of the two lists.
func TestStoppedHandlers(t *testing.T) {
	spec, err := bpf.LoadKernel()
	qt.Assert(t, qt.IsNil(err))
	reads, function := make(map[string]bool), ""
	for _, i := range spec.Programs["on_probe"].Instructions {
		function = cmp.Or(i.Symbol(), function)
		if i.IsBuiltinCall() && asm.BuiltinFunc(i.Constant) == asm.FnKtimeGetNs {
			reads[function] = true
		}
	}
	listed := slices.AppendSeq(slices.Clone(stoppedHandlers), maps.Keys(notStopped))
	qt.Check(t, qt.ContentEquals(slices.Collect(maps.Keys(reads)), listed))
}

// stoppedInKernel stops a thread of the lowest priority in the middle of each handler, by another one that
// takes its processor. The events of another program must not wait for it.
func stoppedInKernel(s *scene) {
	const first, second = "0", "1" // processors
	socket := s.file("ttmem.sock")
	s.file("ttmem.sock.lock") // both are left if the fault fails
	serve := s.trace([]string{"taskset", "--cpu-list", first}, "serve", "--socket", socket)
	serve.ready()
	p := s.start(0, "taskset", "--cpu-list", first)
	p.await(0)
	var arrived atomic.Uint64 // when the newest event that has arrived happened
	arrivals := s.follow(p, socket)
	go func() {
		for a := range arrivals {
			arrived.Store(a.timeNs)
		}
	}()
	done := make(chan struct{})
	defer close(done)
	go func() {
		// seldom enough for an emulated processor, on which ttmem runs as well
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-done:
				return
			case <-tick.C:
				_, _ = p.in.Write([]byte("3\n"))
			}
		}
	}()
	handlers, err := filepath.Abs("programs/handlers.py")
	s.must(err)
	low := s.env.Command(context.Background(), rig.N150, handlers)
	low.Path, low.Args = "/usr/bin/chrt", append([]string{"chrt", "--idle", "0", "taskset", "--cpu-list", second, low.Path}, low.Args[1:]...)
	low.Env, low.Dir = append(low.Env, "TTMEM_MESH=1x1"), s.t.TempDir()
	var said bytes.Buffer
	low.Stdout, low.Stderr = &said, &said
	s.must(low.Start())
	thief := exec.Command("nice", "-n", "-20", "taskset", "--cpu-list", second, "sh", "-c", "kill -STOP $$; while :; do :; done")
	s.must(thief.Start())
	ended := make(chan struct{})
	go func() {
		_ = low.Wait()
		close(ended)
	}()
	defer func() {
		_, _ = low.Process.Kill(), thief.Process.Kill()
		_ = thief.Wait()
		<-ended
	}()
	reader := s.wokenBy(low.Process.Pid)
	go func() {
		<-ended
		reader.Close()
	}()

	// Woken by the thread itself, in the middle of a handler, this one takes its processor.
	runtime.LockOSThread() // and the thread ends with the fault's goroutine
	var cpu unix.CPUSet
	cpu.Set(1)
	s.must(unix.SchedSetaffinity(0, &cpu))
	s.must(unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -20))
	stopped, woken, preempted := make(map[string]time.Duration), 0, false
	left := func() bool {
		return slices.ContainsFunc(stoppedHandlers, func(name string) bool { return stopped[name] == 0 })
	}
	for until := time.Now().Add(8 * time.Minute); left() && time.Now().Before(until); woken++ {
		reader.SetDeadline(time.Now().Add(4 * time.Minute))
		record, err := reader.Read()
		switch {
		case errors.Is(err, ringbuf.ErrClosed):
			s.stop("the program with all handlers has ended: %s", said.Bytes()[max(0, said.Len()-2000):])
		case err != nil:
			s.stop("the program with all handlers does nothing: %v", err)
		}
		tid := int(uint32(binary.NativeEndian.Uint64(record.RawSample)))
		name := handlerOf(low.Process.Pid, tid)
		if name == "" || stopped[name] > 0 {
			continue
		}
		preempted = true
		s.must(thief.Process.Signal(unix.SIGCONT))
		begin := host.Now()
		came := tracetest.Eventually(endLimit, func() bool { return arrived.Load() > begin+100e6 })
		still := handlerOf(low.Process.Pid, tid) == name
		took := time.Duration(host.Now() - begin)
		s.must(thief.Process.Signal(unix.SIGSTOP))
		if !came {
			s.stop("the events of another program wait for a thread that is stopped in %s", name)
		}
		if still {
			stopped[name] = took.Round(time.Millisecond)
		}
	}
	if !preempted {
		s.skip(fmt.Sprintf("this kernel does not preempt a thread in a probe: it was tried %d times", woken))
	}
	names := slices.Sorted(maps.Keys(stopped))
	s.t.Logf("stopped in %d handlers: %v", len(names), stopped)
	for _, name := range stoppedHandlers {
		if stopped[name] == 0 {
			s.fail("no thread was stopped in %s while others' events arrived", name)
		}
	}
	serve.ends()
}

// wokenBy returns a reader that is woken, on the same processor, whenever a thread of a process reads the
// clock in the kernel, as handlers do for the header of a record.
func (s *scene) wokenBy(pid int) *ringbuf.Reader {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 1 << 16})
	s.must(err)
	s.t.Cleanup(func() { ring.Close() })
	const forceWakeup = 2 // BPF_RB_FORCE_WAKEUP
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "woken", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceFEntry, AttachTo: "bpf_ktime_get_ns", License: "GPL",
		Instructions: asm.Instructions{
			asm.FnGetCurrentPidTgid.Call(),
			asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
			asm.RSh.Imm(asm.R0, 32),
			asm.JNE.Imm(asm.R0, int32(pid), "end"),
			asm.LoadMapPtr(asm.R1, ring.FD()),
			asm.Mov.Reg(asm.R2, asm.RFP), asm.Add.Imm(asm.R2, -8),
			asm.Mov.Imm(asm.R3, 8), asm.Mov.Imm(asm.R4, forceWakeup),
			asm.FnRingbufOutput.Call(),
			asm.Mov.Imm(asm.R0, 0).WithSymbol("end"), asm.Return(),
		},
	})
	if errors.Is(err, unix.EPERM) { // root may not, as in some sandboxes
		s.skip("this host loads no program that is called by a kernel function")
	}
	s.must(err)
	defer prog.Close()
	l, err := link.AttachTracing(link.TracingOptions{Program: prog})
	s.must(err)
	s.t.Cleanup(func() { l.Close() })
	reader, err := ringbuf.NewReader(ring)
	s.must(err)
	return reader
}

var handlerName = regexp.MustCompile(`bpf_prog_[0-9a-f]{16}_(\w+)\+`)

// handlerOf is the function of the kernel side in which a thread has been preempted; "": in none.
func handlerOf(pid, tid int) string {
	stack, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stack", pid, tid))
	if !strings.Contains(string(stack), "_on_probe+") {
		return ""
	}
	for _, m := range handlerName.FindAllStringSubmatch(string(stack), -1) {
		if m[1] != "woken" {
			return m[1]
		}
	}
	return ""
}
