// Package hostile attacks ttmem as ordinary users of a host can, while a victim's real ttnn
// program runs. During and after each attack the victim's figures must be exact, none of its
// events lost, every answer there within a second, and the tracers small; and nothing may be
// written where it does not belong.
package hostile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// The long form runs all attacks, for longer, and reads 10,000 damaged recordings.

// patience multiplies the limits of waits: an emulated machine is slower.
var patience = tracetest.Patience

// ttmem is the binary under test: TTMEM_BINARY, or else built from this tree.
var ttmem string

// public is a folder that all users can read: the binary, the library and the programs that
// attack. The rig's own cache may lie in a home that others cannot enter.
var public string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if public, err = os.MkdirTemp("", "ttmem-hostile-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(public)
		ttmem = filepath.Join(public, "ttmem")
		if err := tracetest.Build(ttmem); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if err := errors.Join(rig.Alone(), os.Chmod(public, 0o755)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		interrupted := make(chan os.Signal, 1)
		signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
		go func() {
			<-interrupted
			for _, u := range users {
				u.killAll()
			}
			os.RemoveAll(public)
			os.Exit(1) // which ends the victim and the tracers
		}()
		return m.Run()
	}())
}

// starts runs functions on a thread that lives as long as the test.
var starts = func() chan<- func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
}()

// start starts a command that is killed when the test ends, however it ends.
func start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = unix.SIGKILL // when the thread ends that started it
	started := make(chan error)
	starts <- func() { started <- cmd.Start() }
	return <-started
}

// TestHostile runs the table of attacks. An attack that is known to fail must still fail: a fix
// removes it from the list.
func TestHostile(t *testing.T) {
	r := newRig(t)
	for _, a := range attacks {
		if a.long && !*tracetest.Long {
			continue
		}
		if deadline, ok := t.Deadline(); ok && time.Until(deadline) < time.Minute {
			t.Fatal("no time left for the other attacks") // a timeout would leave processes behind
		}
		t.Run(a.name, func(t *testing.T) {
			began := time.Now()
			failures := r.attack(t, a)
			t.Logf("%.1f s; aims at: %s", time.Since(began).Seconds(), a.aims)
			report(t, a.name, failures)
		})
	}
	for name := range knownToFail {
		if !isAttack(name) {
			t.Errorf("knownToFail has %q, which is no attack", name)
		}
	}
}

// report reports the failures of an attack. One that is known to fail has to.
func report(t *testing.T, name string, failures []string) {
	t.Helper()
	switch why, known := knownToFail[name]; {
	case known && len(failures) == 0:
		t.Errorf("ttmem withstands %q now: remove it from knownToFail", name)
	case known:
		t.Logf("known to fail (%s): %q", why, failures)
	default:
		for _, f := range failures {
			t.Error(f)
		}
	}
}
