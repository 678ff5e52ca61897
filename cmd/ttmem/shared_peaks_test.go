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
	"ttmem/cmd/ttmem/page/peak"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

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
		var doc peak.Document
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
	var all bytes.Buffer
	qt.Assert(t, qt.IsNil(peak.New(root, peak.Options{By: "stack"}).WriteJSON(&all)))
	qt.Check(t, qt.StringContains(all.String(), "secret"))
	qt.Check(t, qt.Equals(strings.Join(of(out.String()), "\n"), strings.Join(of(all.String()), "\n")))
}
