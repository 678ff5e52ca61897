package faults

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
)

// limited runs a program under a command that limits it, with and without ttmem.
func limited(under ...string) func(*scene) {
	return func(s *scene) {
		alone := s.start(20, under...)
		alone.in.Close()
		want := alone.wait()
		tr, p := s.run(under, 20, "run", "--no-record")
		p.in.Close()
		got := tr.wait()
		tr.calm()
		if got != want || clocked(p.output()) != clocked(alone.output()) {
			s.fail("the program ended with %s: %q; untraced with %s: %q; ttmem says %s",
				describe(got), difference(p.output(), alone.output()), describe(want), difference(alone.output(), p.output()), lastPart(tr.said()))
		}
	}
}

// attempt attaches to a program under a limit. It either works, or ttmem ends with one line.
// If it cannot even say so, crash is what Go's runtime says in its place.
func (s *scene) attempt(what string, under []string, crash string) (worked bool) {
	return s.attemptFor(0, what, under, crash)
}

// attemptFor is attempt with an attach that lasts longer. It is repeated if it ended before ttmem had read the memory of the program.
func (s *scene) attemptFor(longer time.Duration, what string, under []string, crash string) (worked bool) {
	p := s.attached()
	recording := s.file("program.ttmem")
	tr := s.trace(under, "attach", "--json", "-o", recording, "-p", fmt.Sprint(p.pid))
	for !tr.isReady() && !tr.hasEnded() {
		time.Sleep(10 * time.Millisecond)
	}
	if !tr.hasEnded() {
		p.play(3)
		time.Sleep(longer)
		tr.signal(unix.SIGTERM)
	}
	status := tr.wait()
	said := tr.said()
	one := strings.Count(said, "\n") == 1
	s.t.Logf("%s: %s, %.300q", what, describe(status), said)
	switch {
	case status.Exited() && status.ExitStatus() == 0:
		worked = true
	case strings.Contains(said, "interrupted before the memory of processes was read") && longer < endLimit/2:
		_ = os.Remove(recording)
		return s.attemptFor(2*longer+time.Second, what, under, crash)
	case status.Exited() && status.ExitStatus() == 1 && one:
	case status.Exited() && crash != "" && strings.Contains(said, crash):
	case status.Signaled() && status.Signal() == unix.SIGKILL && crash != "": // the kernel's way to enforce it
		if _, err := os.Stat(recording); err == nil && tr.isReady() {
			s.readable(recording, false)
		}
	default:
		tr.fail("with %s ttmem ended with %s: %s", what, describe(status), said[:min(len(said), 2000)])
	}
	_ = os.Remove(recording)
	return worked
}

func (tr *tracer) hasEnded() bool {
	if tr.status != nil {
		return true
	}
	state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", tr.cmd.Process.Pid))
	return err != nil || strings.Contains(string(state), ") Z ")
}

func fewDescriptors(s *scene) {
	counts := []int{20, 162}
	if *tracetest.Long {
		counts = []int{12, 16, 24, 64, 128, 159, 160, 161, 170, 180} // with fewer, Go's runtime does not start
	}
	for _, n := range counts {
		s.attempt(fmt.Sprint(n, " descriptors"), []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", n, n)}, "")
	}
}

// shortFiles limits the length of files.
func shortFiles(s *scene) {
	p := s.attached()
	recording := s.file("program.ttmem")
	tr := s.trace([]string{"prlimit", "--fsize=40000"}, "attach", "-o", recording, "-p", fmt.Sprint(p.pid))
	tr.ready()
	p.playUntil(tr.hasEnded)
	tr.exits(1)
	tr.saysOnce(recording + ": file too large")
	s.readable(recording, false)
}

func littleAddressSpace(s *scene) {
	sizes := []int{400, 1500}
	if *tracetest.Long {
		sizes = []int{100, 200, 300, 400, 500, 700, 1000, 1300, 1600, 2500, 4000}
	}
	for _, mib := range sizes {
		s.attempt(fmt.Sprint(mib, " MiB of addresses"), []string{"prlimit", fmt.Sprintf("--as=%d", mib<<20)}, "memory")
	}
}

// cgroup makes a cgroup with a limit, and returns a command that starts another one in it. It
// skips the fault where the host has no such cgroups.
func (s *scene) cgroup(controller string, limits map[string]string) (under []string) {
	const root = "/sys/fs/cgroup"
	name := fmt.Sprintf("ttmem-faults-%d", os.Getpid())
	dir := filepath.Join(root, controller, name)
	if _, err := os.Stat(root + "/cgroup.controllers"); err == nil { // version 2
		_ = os.WriteFile(root+"/cgroup.subtree_control", []byte("+"+controller), 0)
		dir = filepath.Join(root, name)
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
		s.skip(fmt.Sprint("no cgroups here: ", err))
	}
	s.t.Cleanup(func() { _ = os.Remove(dir) })
	set := false
	for file, limit := range limits { // of either version
		f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
		if err != nil {
			continue
		}
		_, err = f.WriteString(limit)
		f.Close()
		set = set || err == nil
	}
	if !set {
		s.skip("no limits of " + controller + " here")
	}
	return []string{"sh", "-c", `echo $$ > "$0" && exec "$@"`, filepath.Join(dir, "cgroup.procs")}
}

func littleMemory(s *scene) {
	sizes := []int{100, 224}
	if *tracetest.Long {
		sizes = []int{10, 30, 100, 160, 223, 224, 300}
	}
	for _, mib := range sizes {
		limit := strconv.Itoa(mib << 20)
		under := s.cgroup("memory", map[string]string{"memory.limit_in_bytes": limit, "memory.max": limit})
		s.attempt(fmt.Sprint(mib, " MiB of memory"), under, "")
	}
}

func fewThreads(s *scene) {
	counts := []int{3, 8}
	if *tracetest.Long {
		counts = []int{1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20}
	}
	for _, n := range counts {
		s.attempt(fmt.Sprint(n, " threads"), s.cgroup("pids", map[string]string{"pids.max": strconv.Itoa(n)}), "new OS thread")
	}
}

// littleTime lets ttmem run for 5 of 100 ms.
func littleTime(s *scene) {
	if !s.attempt("5 % of a processor", s.cgroup("cpu", map[string]string{
		"cpu.cfs_quota_us": "5000", "cpu.max": "5000 100000",
	}), "") {
		s.fail("with little time of a processor ttmem does not work")
	}
}
