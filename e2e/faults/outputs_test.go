package faults

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/e2e/tracetest"
	"ttmem/tracer/host"
)

// nothing goes wrong: the rig itself passes, and sees probes where there are some.
func nothing(s *scene) {
	tr, run := s.run(nil, 5, "run", "-o", s.file("run.ttmem"))
	run.in.Close()
	tr.exits(3)
	run.printedAll()

	p := s.attached()
	recording := s.file("program.ttmem")
	tr = s.trace(nil, "attach", "-o", recording, "-p", fmt.Sprint(p.pid))
	tr.ready()
	if n := len(p.probes()); n < 10 {
		s.fail("%d probes are seen in the program", n)
	}
	if len(s.left()) < 10 {
		s.fail("the kernel has only %q", s.left())
	}
	p.play(5)
	tr.ends()
	s.readable(recording, true)
	s.exact(p, recording)
}

// disk is a folder that has room for so many KiB.
func (s *scene) disk(kib int) string {
	dir := s.file("disk")
	s.must(os.Mkdir(dir, 0o755))
	s.must(unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)))
	s.t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

func diskFullOfRecording(s *scene) {
	p := s.attached()
	recording := filepath.Join(s.disk(96), "program.ttmem")
	tr := s.trace(nil, "attach", "-o", recording, "--max-size", "64KiB", "--keep", "5", "-p", fmt.Sprint(p.pid))
	tr.ready()
	p.playUntil(tr.hasEnded)
	tr.exits(1) // there is nothing else that it could do
	tr.saysOnce("no space left")
	s.readable(recording, false)
}

func diskFullOfCommand(s *scene) {
	recording := filepath.Join(s.disk(64), "program.ttmem")
	tr, p := s.run(nil, 100, "run", "-o", recording)
	p.in.Close()
	tr.exits(3)
	p.printedAll()
	tr.saysOnce("no space left")
	s.readable(recording, false)
}

// diskFullForAWhile is a service whose recording goes on when there is room again.
func diskFullForAWhile(s *scene) {
	p := s.attached()
	disk := s.disk(256)
	filler := filepath.Join(disk, "filler")
	s.must(os.WriteFile(filler, make([]byte, 170<<10), 0o600))
	recording := filepath.Join(disk, "host.ttmem")
	tr := s.trace(nil, "serve", "--socket", filepath.Join(s.dir, "ttmem.sock"), "-o", recording, "--max-size", "64KiB", "--keep", "2")
	tr.ready()
	p.playUntil(func() bool { return strings.Contains(tr.said(), "no space left") })
	tr.saysOnce("no space left")
	s.must(os.Remove(filler))
	tracetest.Eventually(20*time.Second, func() bool { return strings.Contains(tr.said(), "recording goes on") })
	tr.saysOnce("recording goes on")
	p.play(2)
	tr.signal(unix.SIGTERM)
	tr.exits(1) // something was not recorded
	s.readable(recording, true)
	s.exact(p, recording)
}

// folderRemoved takes the folder away in which the next file of a recording is to be.
func folderRemoved(s *scene) {
	p := s.attached()
	dir := filepath.Join(s.dir, "folder")
	s.must(os.Mkdir(dir, 0o755))
	tr := s.trace(nil, "attach", "-o", filepath.Join(dir, "program.ttmem"), "--max-size", "64KiB", "-p", fmt.Sprint(p.pid))
	tr.ready()
	s.must(os.RemoveAll(dir))
	p.playUntil(tr.hasEnded)
	tr.exits(1)
	tr.saysOnce("no such file or directory")
}

func readerOfRecordingGone(s *scene) {
	p := s.attached()
	r, w, err := os.Pipe()
	s.must(err)
	tr := s.traceTo(w, nil, "attach", "-o", "/dev/stdout", "-p", fmt.Sprint(p.pid))
	w.Close()
	tr.ready()
	p.play(10)
	_, err = io.ReadFull(r, make([]byte, 1000))
	s.must(err)
	r.Close()
	p.playUntil(tr.hasEnded)
	tr.exits(1)
	tr.saysOnce("broken pipe")
}

// readerOfReportGone is a `ttmem run` whose messages nobody reads.
func readerOfReportGone(s *scene) {
	r, w, err := os.Pipe()
	s.must(err)
	r.Close()
	cmd, p := s.command([]string{ttmem, "run", "--no-record", "--"}, 20)
	cmd.Stderr = w
	s.programs = append(s.programs, p)
	tr := s.begin(cmd)
	w.Close()
	p.in.Close()
	tr.exits(3)
	p.printedAll()
}

// full is a pipe that nobody reads and that is full.
func (s *scene) full() *os.File {
	r, w, err := os.Pipe()
	s.must(err)
	s.t.Cleanup(func() { r.Close(); w.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 4096)
	s.must(err)
	_, err = w.Write(make([]byte, size))
	s.must(err)
	return w
}

// isGivenUp interrupts ttmem until it ends, which it can only at once.
func (tr *tracer) isGivenUp() {
	tracetest.Eventually(endLimit, func() bool {
		tr.signal(unix.SIGINT)
		return tr.hasEnded()
	})
	tr.exits(128 + int(unix.SIGINT))
}

// interruptedAgain has ttmem give up a report that nobody reads.
func interruptedAgain(s *scene) {
	p := s.attached()
	tr := s.traceTo(s.full(), nil, "attach", "--no-record", "--json", "-p", fmt.Sprint(p.pid))
	tr.ready()
	p.play(2)
	tr.isGivenUp()
	tr.saysOnce("interrupted again")
}

// commandInterruptedAgain has ttmem give up the report of a command.
func commandInterruptedAgain(s *scene) {
	cmd, p := s.command([]string{ttmem, "run", "--no-record", "--"}, 2)
	cmd.Stderr = s.full()
	s.programs = append(s.programs, p)
	tr := s.begin(cmd)
	tracetest.Eventually(endLimit, func() bool { p.pid = tr.child(); return p.pid != 0 })
	p.in.Close()
	tracetest.Eventually(endLimit, func() bool { return host.Ended(p.pid) })
	p.wait()
	p.printedAll()
	tr.isGivenUp()
}
