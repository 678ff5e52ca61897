package doctor

import (
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/bpf"
	"ttmem/symbolize"
	"ttmem/tracer/host"
	"ttmem/tracer/internal/stack"
	"ttmem/tracer/kernel"
)

//go:generate clang-19 -O2 -Wall -Werror -static -nostdlib -ffreestanding -fno-builtin -fno-stack-protector -fomit-frame-pointer -fasynchronous-unwind-tables -Wl,--build-id=none,-z,noseparate-code,-z,norelro -o selftest/target selftest/target.c

// selftestTarget is the program that selfTest traces: selftest/target.c, compiled.
//
//go:embed selftest/target
var selftestTarget []byte

// selftestStack are the functions on its stack at the probe, innermost first. It is
// constant.
var selftestStack = []string{"probed", "inner", "middle", "middle", "middle", "outer", "run", "_start"}

// selftestCalls is the number of calls of the probed function: the first call unwinds its
// stack, the second finds it cached.
const selftestCalls = 2

// selfTest loads the kernel side, traces a small program and compares the result with the
// program's calls: it calls the first function of stack, with stack as its call stack. It returns
// a feature for each step. On a busy host it tries again while patience lasts.
func selfTest(stack []string, patience time.Duration) []kernel.Feature {
	programs := kernel.Feature{Name: "BPF programs"}
	probes := kernel.Feature{Name: "probes", Detail: "not tried: the BPF programs do not load"}
	stacks := kernel.Feature{Name: "call stacks", Detail: "not tried: no probe is hit"}
	err := func() error {
		if !kernel.MayTrace() {
			return unix.EPERM
		}
		target, err := startSelftest()
		if err != nil {
			return fmt.Errorf("starting the program to be traced: %w", err)
		}
		defer target.end()
		t, err := loadSelftest()
		if err != nil {
			return err
		}
		defer t.close()
		programs.OK, programs.Detail = true, "loaded as tracing loads them"
		began := time.Now()
		seen, err := t.trace(target, stack, began.Add(patience))
		if err != nil {
			probes.Detail = err.Error()
			return nil
		}
		took := time.Since(began)
		late := took >= patience && isBusy()
		probes.OK, probes.Detail = seen.hits == selftestCalls, fmt.Sprintf("%d of %d calls of a test program seen", seen.hits, selftestCalls)
		probes.Busy = late && !probes.OK
		if seen.hits == 0 {
			return nil
		}
		right := seen.right(stack)
		stacks.OK = probes.OK && right == seen.hits
		stacks.Busy = late && !stacks.OK
		stacks.Detail = fmt.Sprintf("%d of %d stacks of %d frames right", right, seen.hits, len(stack))
		switch {
		case !stacks.OK:
			if len(seen.stacks) > 0 {
				stacks.Detail += "; the first is " + strings.Join(seen.stacks[0], " ")
			}
		case took > time.Second:
			stacks.Detail += fmt.Sprintf(", after %.1f s", took.Seconds())
		}
		return nil
	}()
	if err != nil {
		programs.Detail = err.Error()
	}
	if kernel.NotPermitted(err) {
		programs.Untried, probes.Untried, stacks.Untried = true, true, true
	}
	return []kernel.Feature{programs, probes, stacks}
}

// selftestProcess is the running target.
type selftestProcess struct {
	cmd *exec.Cmd
	exe *os.File
	in  io.WriteCloser
	out io.Reader
}

// startSelftest starts the target. It runs from an anonymous file, as /tmp may not allow
// programs.
func startSelftest() (*selftestProcess, error) {
	fd, err := unix.MemfdCreate("ttmem-selftest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	p := &selftestProcess{exe: os.NewFile(uintptr(fd), "ttmem-selftest")}
	path := fmt.Sprintf("/proc/self/fd/%d", fd)
	p.cmd = exec.Command(path)
	if _, err = p.exe.Write(selftestTarget); err == nil {
		p.in, err = p.cmd.StdinPipe()
	}
	if err == nil {
		p.out, err = p.cmd.StdoutPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err == nil {
		err = p.call() // its program may not be mapped before
	}
	if err != nil {
		p.exe.Close()
		return nil, err
	}
	return p, nil
}

func (p *selftestProcess) pid() int { return p.cmd.Process.Pid }

// call makes the target call the probed function once.
func (p *selftestProcess) call() error {
	b := []byte{1}
	if _, err := p.in.Write(b); err != nil {
		return err
	}
	_, err := io.ReadFull(p.out, b)
	return err
}

func (p *selftestProcess) end() {
	p.in.Close()
	_ = p.cmd.Wait() // it ends at the end of its input
	p.exe.Close()
}

// selftestSeen are the observed calls, and the stacks of those that had one as functions,
// innermost first.
type selftestSeen struct {
	hits   int
	stacks [][]string
}

// right counts the stacks that are as they should be.
func (s *selftestSeen) right(stack []string) (n int) {
	for _, one := range s.stacks {
		if slices.Equal(one, stack) {
			n++
		}
	}
	return n
}

// mayComeLater reports whether calls or frames are missing, as before the code of a process is known.
func (s *selftestSeen) mayComeLater(stack []string) bool {
	return s.hits < selftestCalls || len(s.stacks) < s.hits ||
		slices.ContainsFunc(s.stacks, func(one []string) bool { return len(one) < len(stack) })
}

// isBusy reports whether more threads want to run than there are processors.
func isBusy() bool {
	var load float64
	var running int
	text, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscanf(string(text), "%f %f %f %d/", &load, new(float64), new(float64), &running)
	return max(load, float64(running)) > float64(runtime.NumCPU())
}

// selftest traces the target: it has the loaded kernel side and the data for recording stacks.
type selftest struct {
	objs    *kernel.Objects
	readers *host.Readers
	spaces  *stack.Spaces
}

func loadSelftest() (*selftest, error) {
	if err := kernel.Check(); err != nil {
		return nil, err
	}
	k, err := kernel.Detect()
	if err != nil {
		return nil, err
	}
	t := &selftest{readers: host.NewReaders()}
	t.spaces = stack.NewSpaces(t.readers, func(string) {})
	if t.objs, err = k.Load(kernel.LoadOptions{OnlyListed: true, Stacks: true}); err != nil {
		return nil, err
	}
	if err := t.spaces.Start(t.objs); err != nil {
		t.objs.Close()
		return nil, err
	}
	return t, nil
}

func (t *selftest) close() {
	t.spaces.Close()
	t.readers.Close()
	t.objs.Close()
}

// trace places the probe of an allocation on the innermost function of a stack of the target, and makes
// the target call it until that is seen with the stack, or with a whole one that is another, or until a
// deadline.
func (t *selftest) trace(target *selftestProcess, stack []string, until time.Time) (seen selftestSeen, err error) {
	elf, err := symbolize.New(target.exe, int64(len(selftestTarget)))
	if err != nil {
		return seen, err
	}
	defer elf.Close()
	probed, ok := elf.Lookup(stack[0])
	offset, ok2 := elf.FileOffset(probed.Addr)
	if !ok || !ok2 {
		return seen, errors.New("the test program has no function to probe")
	}
	// a Buffer of zeros, whose first byte is each of its fields
	layout := bpf.KernelLayout{BufferImpl: bpf.NoField}
	const id = bpf.KernelProbePROBE_BUFFER_ALLOCATED
	layout.ProbeAddress[id] = probed.Addr
	if err := t.objs.Layouts.Put(uint32(0), &layout); err != nil {
		return seen, err
	}
	path := fmt.Sprintf("/proc/self/fd/%d", target.exe.Fd())
	probes, err := t.objs.Support.Uprobes.Place(path, t.objs.OnProbe, []uint64{offset}, []uint64{uint64(id)}, 0)
	if err != nil {
		return seen, fmt.Errorf("placing a probe: %w", kernel.ShortError(err))
	}
	defer probes.Close()
	if _, err := t.objs.AddProcess(target.pid(), 0); err != nil {
		return seen, fmt.Errorf("listing the test program: %w", err)
	}
	stacks := make(map[uint64][]string)
	for {
		t.spaces.Changed(target.pid())
		t.spaces.Settle()
		for range selftestCalls {
			if err := target.call(); err != nil {
				return seen, fmt.Errorf("the test program ended at the probe: %w", err)
			}
		}
		if seen, err = t.read(elf, stacks); err != nil || !seen.mayComeLater(stack) || time.Now().After(until) {
			return seen, err
		}
		time.Sleep(answerTime)
	}
}

// answerTime is how long to wait for the records of finished calls, which are in the ring buffer.
const answerTime = 10 * time.Millisecond

// read reads the records of the target's calls. stacks has those that came by now, by their ids.
func (t *selftest) read(elf *symbolize.ELF, stacks map[uint64][]string) (seen selftestSeen, err error) {
	var ids []uint64
	until := time.Now().Add(answerTime)
	for len(ids) < selftestCalls {
		record, _, err := t.objs.Ring.Next(until)
		if err != nil {
			return seen, fmt.Errorf("reading the ring buffer: %w", err)
		}
		if record == nil {
			break
		}
		switch h := bpf.As[bpf.KernelHeader](record); {
		case h == nil:
		case h.Kind == bpf.RecordAlloc:
			ids = append(ids, h.Stack.Native)
		case h.Kind == bpf.RecordNativeStack:
			r := bpf.Begun[bpf.KernelNativeRecord](record, 0)
			for _, address := range r.Addresses[:min(int(r.Frames), len(r.Addresses))] {
				s, _, _ := elf.At(address)
				stacks[r.Id] = append(stacks[r.Id], s.Name)
			}
		}
	}
	seen.hits = len(ids)
	for _, id := range ids {
		if id != 0 {
			seen.stacks = append(seen.stacks, stacks[id])
		}
	}
	return seen, nil
}
