package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/internal/document"
	"ttmem/cmd/ttmem/internal/page/peak"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// TestAProcessOfAnotherUserIsNoneOfYours: no view of the service says more of it.
func TestAProcessOfAnotherUserIsNoneOfYours(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
	defer unix.Umask(unix.Umask(0o022))
	shareFolder(t)
	path, err := filepath.Abs("s")
	qt.Assert(t, qt.IsNil(err))
	serveEvents(t, path, sharedHost(anna, ben))
	says := func(uid uint32, args ...string) string {
		cmd := exec.Command("./ttmem", append(args, "--socket", path)...)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		out, _ := cmd.CombinedOutput()
		return string(out)
	}
	for _, view := range [][]string{
		{"dump"}, {"map"}, {"oom"}, {"ops"}, {"report"}, {"top", "--once"}, {"leaks", "--duration", "1ms"}, {"peak", "--duration", "1ms"},
	} {
		args := append(view, "-p", "4194301")
		qt.Check(t, qt.StringContains(says(ben+1, args...),
			"ttmem: -p 4194301: no such process of yours on this host; ttmem serve shows each user their own processes\n"), qt.Commentf("%v", args))
		qt.Check(t, qt.StringContains(says(anna, args...),
			"ttmem: -p 4194301: no such process of yours on this host; "), qt.Commentf("%v", args))
	}
	qt.Check(t, qt.Equals(says(anna, "map", "-p", "4194301"), "ttmem: -p 4194301: no such process of yours on this host; available: PID 4194300\n"))
	qt.Check(t, qt.StringContains(says(anna, "dump", "-p", "4194300"), "has nothing live on this host;"))
	qt.Check(t, qt.StringContains(says(anna, "oom"), "1 allocation failed in your processes on this host\n"))
	qt.Check(t, qt.StringContains(says(ben, "oom", "-p", "4194301"), "1 allocation failed on this host\n"))
	// a process that did not fail, beside one that did
	quiet, err := filepath.Abs("quiet")
	qt.Assert(t, qt.IsNil(err))
	serveEvents(t, quiet, append(sharedHost(anna), event.Event{Kind: event.ProcessStart, PID: 7, UID: anna, Comm: "python3"}))
	path = quiet
	for _, uid := range []uint32{0, anna} {
		qt.Check(t, qt.StringContains(says(uid, "oom", "-p", "7"), "No allocation of PID 7 failed on this host; 1 other did.\n"))
	}
}

// TestAUserWatchesThePeaksThatRootHas, also where another user allocates meanwhile.
func TestAUserWatchesThePeaksThatRootHas(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can run a command as another user")
	}
	defer unix.Umask(unix.Umask(0o022))
	shareFolder(t)
	path, err := filepath.Abs("s")
	qt.Assert(t, qt.IsNil(err))
	events := sharedHost(anna, ben)
	for i := range events {
		events[i].TimeNs = uint64(i + 1)
	}
	hub := serveEvents(t, path, events)

	cmd := exec.Command("./ttmem", "peak", "--json", "--socket", path)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: anna, Gid: anna}}
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	line, err := bufio.NewReader(stderr).ReadString('\n')
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(line, "watching the events of the host's service"))
	more := pagetest.Buffer(event.Alloc, 1<<20, event.DRAM, 0x100000, 1<<20, pagetest.Stack("add", "secret", 9), 0)
	more.TimeNs, more.PID, more.Allocator = 1e9, 4194301, 4194301
	hub.Apply(&more)
	hub.Flush()
	qt.Check(t, qt.IsNil(cmd.Process.Signal(os.Interrupt)))
	_, _ = io.Copy(io.Discard, stderr)
	qt.Assert(t, qt.IsNil(cmd.Wait()))
	qt.Check(t, qt.Not(qt.StringContains(out.String(), "secret")))
	qt.Check(t, qt.Not(qt.StringContains(out.String(), "4194301")))

	of := func(text string) (lines []string) {
		var doc peakDocument
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), &doc)))
		for _, p := range doc.Peaks {
			var bytes uint64
			for _, g := range p.Groups {
				bytes += g.Bytes
			}
			lines = append(lines, fmt.Sprint(p.Devices, p.Region, p.TimeNs, p.Bytes, p.StaticBytes, bytes))
		}
		return lines
	}
	root := aggregate.New()
	for _, e := range append(events, more) {
		root.Apply(&e)
	}
	all := document.Append(nil, peak.New(root, peak.Options{By: "stack"}).Document(), nil)
	qt.Check(t, qt.StringContains(string(all), "secret"))
	qt.Check(t, qt.Equals(strings.Join(of(out.String()), "\n"), strings.Join(of(string(all)), "\n")))
}
