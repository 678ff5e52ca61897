// Package faults disturbs ttmem and what it traces in every way that happens on a host:
// signals, full disks, readers that are gone, limits, processes that end or change at the
// wrong moment. Each time the traced program must end and print as it does untraced, and
// nothing of ttmem may be left: no process, no probe, no object in the kernel, no file that
// was not requested. What was recorded can be read, and says so if its end is missing.
package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// seed decides all that is random, except for what the scheduler does.
var seed = flag.Uint64("seed", 1, "seed of random signals and moments")

// ttmem is the binary under test.
var ttmem string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		lastRound = 30
	}
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "ttmem-faults-")
		if err == nil {
			defer os.RemoveAll(dir)
			ttmem = filepath.Join(dir, "ttmem")
			err = tracetest.Build(ttmem)
		}
		if err == nil {
			// What a tracer leaves running becomes a child of this process.
			err = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
		}
		if err == nil {
			err = rig.Alone()
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
		go func() {
			<-interrupted
			for _, pid := range children() { // and the program of a `ttmem run` ends with its input
				_ = unix.Kill(pid, unix.SIGKILL)
			}
			os.RemoveAll(dir)
			os.Exit(1)
		}()
		return m.Run()
	}())
}

// fault is one thing that goes wrong.
type fault struct {
	name string
	// long is for the long form only.
	long bool
	do   func(*scene)
}

// TestFaults runs the table of faults and random signals. A fault that is known to fail must
// still fail: a fix removes it from the list.
func TestFaults(t *testing.T) {
	tracetest.NeedsRoot(t)
	env, err := rig.Setup(context.Background(), rig.Options{Version: rig.DefaultVersion, Python: "3.10", Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	r := newStage(t, env)
	n := 6
	if *tracetest.Long {
		n = 200
	}
	names := make(map[string]bool)
	for i, f := range append(faults, randomSignals(*seed, n)...) {
		names[f.name] = true
		if f.long && !*tracetest.Long {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			if deadline, ok := t.Deadline(); ok && time.Until(deadline) < time.Minute {
				t.Fatal("no time left for the other faults") // a timeout would leave processes behind
			}
			failures, skipped := r.play(t, f, rand.New(rand.NewPCG(*seed, uint64(i))))
			switch why, known := knownToFail[f.name]; {
			case skipped != "" && len(failures) == 0:
				t.Skip(skipped)
			case known && len(failures) == 0:
				t.Errorf("ttmem survives %q now: remove it from knownToFail", f.name)
			case known:
				t.Logf("known to fail (%s): %q", why, failures)
			default:
				for _, failure := range failures {
					t.Errorf("%s (-seed %d)", failure, *seed)
				}
			}
		})
	}
	for name := range knownToFail {
		if !names[name] {
			t.Errorf("knownToFail has %q, which is no fault", name)
		}
	}
	r.end(t)
}
