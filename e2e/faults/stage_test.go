package faults

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// stage is what all faults share.
type stage struct {
	t   *testing.T
	env *rig.Env
	// script is what the program prints, untraced; nil: not known yet.
	script *script
	// shared is a program that is attached to again and again; nil: to be started.
	shared *program
	dir    string // its folder
	// statuses are those of untraced programs after signals.
	statuses map[string]unix.WaitStatus
	// objects are the newest of the kernel at the beginning of each fault.
	objects []begun
}

// begun are the newest objects of the kernel when a fault began.
type begun struct {
	fault string
	objects
}

// objects are ids of BPF objects. Later ones have higher ids. A link has a program.
type objects struct {
	program ebpf.ProgramID
	m       ebpf.MapID
}

func newStage(t *testing.T, env *rig.Env) *stage {
	t.Helper()
	return &stage{t: t, env: env, dir: t.TempDir(), statuses: make(map[string]unix.WaitStatus)}
}

// reference is what the program prints, untraced.
func (s *scene) reference() *script {
	if s.script == nil {
		in := &scene{stage: s.stage, t: s.t, dir: s.t.TempDir()}
		p := in.start(lastRound)
		p.in.Close()
		if status := p.wait(); status.ExitStatus() != 3 {
			s.stop("the untraced program ended with %s: %s", describe(status), p.errors())
		}
		s.script = newScript(p.output())
	}
	return s.script
}

// play runs a fault, and returns what went wrong, or why it was skipped.
func (r *stage) play(t *testing.T, f fault, random *rand.Rand) (failures []string, skipped string) {
	s := &scene{stage: r, t: t, dir: t.TempDir(), random: random}
	r.objects = append(r.objects, begun{f.name, newest(objects{})})
	start := time.Now()
	func() {
		defer func() {
			if p := recover(); p != nil && p != errStop {
				s.fail("%v\n%s", p, debug.Stack())
			}
		}()
		f.do(s)
	}()
	s.finish()
	t.Logf("%.1f s", time.Since(start).Seconds())
	return s.failures, s.skipped
}

// end ends the shared program, and waits until the kernel has freed everything.
func (r *stage) end(t *testing.T) {
	if r.shared != nil {
		s := &scene{stage: r, t: t, dir: r.dir}
		s.endShared()
		for _, failure := range s.failures {
			t.Error(failure)
		}
	}
	// The kernel frees objects after several grace periods, one after the other, which take
	// minutes if other work keeps all processors busy.
	var left []string
	tracetest.Eventually(5*time.Minute, func() bool {
		left = r.left()
		return len(left) == 0
	})
	if len(left) > 0 {
		t.Errorf("left in the kernel: %q", left)
	}
}

// left names the objects that were made since the first fault and still exist.
func (r *stage) left() (left []string) {
	if len(r.objects) == 0 {
		return nil
	}
	for at := r.objects[0].objects; ; {
		next := at
		if id, err := ebpf.ProgramGetNextID(at.program); err == nil {
			next.program = id
			left = append(left, fmt.Sprintf("program %d of %q", id, r.began(func(b objects) bool { return b.program < id })))
		}
		if id, err := ebpf.MapGetNextID(at.m); err == nil {
			next.m = id
			left = append(left, fmt.Sprintf("map %d of %q", id, r.began(func(b objects) bool { return b.m < id })))
		}
		if next == at {
			return left
		}
		at = next
	}
}

// began is the last fault that began before an object was made.
func (r *stage) began(before func(objects) bool) (fault string) {
	for _, b := range r.objects {
		if before(b.objects) {
			fault = b.fault
		}
	}
	return fault
}

// newest are the newest objects, from some on.
func newest(at objects) objects {
	for {
		id, err := ebpf.ProgramGetNextID(at.program)
		if err != nil {
			break
		}
		at.program = id
	}
	for {
		id, err := ebpf.MapGetNextID(at.m)
		if err != nil {
			return at
		}
		at.m = id
	}
}

// children are the processes that this one has, also by inheritance.
func children() (pids []int) {
	all, _ := host.PIDs()
	for _, pid := range all {
		if host.Parent(pid) == os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
