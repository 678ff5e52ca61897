package tracer

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/bpf"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
)

// startsWorkers starts a process that runs Python, as it does, and one that sleeps.
const startsWorkers = `
import subprocess, sys
for command in ([sys.executable, "-c", "input()"], ["sleep", "1000"]):
    one = subprocess.Popen(command, stdin=subprocess.PIPE)
    print(one.pid, flush=True)
    input()
    one.kill()
    one.wait()
`

// The code of a Python process that a traced one has started is known before it maps a library: on a busy host this
// takes longer than the time from then to its first allocation.
func TestWorkersArePreparedFor(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("all %v", all), func(t *testing.T) {
			tracetest.NeedsRoot(t)
			program := tracetest.Start(t, "sh", "-c", `echo ready; read go; exec python3 -c "$1"`, "sh", startsWorkers)
			pid := program.Process.Pid
			o := Options{Warn: func(_ int, text string) { t.Log(text) }}
			if !all {
				o.Processes, o.Children = []int{pid}, true
			}
			tr, err := New(o)
			qt.Assert(t, qt.IsNil(err))
			ctx, cancel := context.WithCancel(t.Context())
			var running sync.WaitGroup
			running.Go(func() { qt.Check(t, qt.IsNil(tr.Run(ctx, func(*event.Event) {}, func() {}))) })
			t.Cleanup(func() { cancel(); running.Wait(); tr.Close() })
			qt.Assert(t, qt.IsNil(tr.PrepareCommand(ctx, pid, os.Getpid(), -1)))

			isKnown := func(pid int) bool {
				var p bpf.KernelProcess
				return tr.objs.Processes.Lookup(uint32(pid), &p) == nil && p.Space != 0
			}
			next := func() int {
				started, err := strconv.Atoi(program.Do(t, ""))
				qt.Assert(t, qt.IsNil(err))
				return started
			}
			worker := next()
			qt.Check(t, qt.IsTrue(tracetest.Eventually(time.Minute, func() bool { return isKnown(worker) })))
			sleeps := next()
			qt.Check(t, qt.IsTrue(isKnown(pid)))
			time.Sleep(200 * time.Millisecond)
			qt.Check(t, qt.IsFalse(isKnown(sleeps))) // no program pays for what it will not use
			program.Tell(t, "")                      // it ends that one
			qt.Check(t, qt.IsNil(program.Wait()))
		})
	}
}
