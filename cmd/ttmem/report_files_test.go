package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/record"
	"ttmem/tracer/event"
)

// eventLines is a file of events.
func eventLines(t *testing.T, mode os.FileMode) string {
	t.Helper()
	var text []byte
	for _, e := range []event.Event{
		{Kind: event.Alloc, PID: 7, TimeNs: 1, BufferID: 1, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1 << 10, Banks: 12},
		{Kind: event.Free, PID: 7, TimeNs: 2, BufferID: 1, Devices: []int{0}, Region: event.DRAM, BytesPerBank: 1 << 10, Banks: 12, Reason: event.ReasonExplicit},
	} {
		text = append(e.AppendJSON(text), '\n')
	}
	path := filepath.Join(t.TempDir(), "events.jsonl")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, text, mode)))
	return path
}

func TestWhatIsMadeOfAPrivateFileIsPrivate(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022))
	for mode, want := range map[os.FileMode]os.FileMode{0o644: 0o644, 0o600: 0o600} {
		unix.Umask(0o022)
		path := eventLines(t, mode)
		folded := filepath.Join(filepath.Dir(path), "folded")
		qt.Assert(t, qt.IsNil(execute("report", path, "--json", "--folded", folded)))
		info, err := os.Stat(folded)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(info.Mode().Perm(), want))
	}
}

func readAll(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

func TestTheReportIsOnStandardOutputUnlessAFileIs(t *testing.T) {
	path := eventLines(t, 0o644)
	for _, c := range []struct {
		flag, file string
		isReport   bool
	}{
		{"--folded", filepath.Join(t.TempDir(), "folded"), true},
		{"--folded", "-", false},
		{"--folded", "/proc/self/fd/1", false},
	} {
		cmd := exec.Command(os.Args[0], "report", path, c.flag, c.file)
		cmd.Env = append(os.Environ(), asCommand+"=1")
		out, err := cmd.Output()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(strings.Contains(string(out), "Device memory"), c.isReport), qt.Commentf("%s %s: %s", c.flag, c.file, out))
	}
}

func TestWhatCannotBeReadAtAllIsNotSaidToBeRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "model.ttmem")
	recorded(t, record.Options{Path: path}, 1)
	whole := []byte(readAll(t, path))
	lines := []byte(readAll(t, eventLines(t, 0o644)))
	block := bytes.Index(whole, []byte("TTMb"))
	damaged := bytes.Clone(whole)
	damaged[block+50] ^= 0xff
	for _, c := range []struct {
		content []byte
		want    string
	}{
		{whole[:12], ".*model.ttmem is cut short in its header: nothing in it can be read; record again"},
		{whole[:block+50], ".*model.ttmem is cut short in its first block: nothing in it can be read; record again"},
		{damaged, `.*model.ttmem is damaged in its first block \(its checksum is wrong\): nothing in it can be read; record again`},
		{lines[:20], ".*model.ttmem is cut short in its first line: nothing in it can be read; record again"},
		{[]byte("{\"v\":1,}\n"), ".*model.ttmem: line 1 is not an event record: name a recording, .*"},
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, c.content, 0o644)))
		qt.Check(t, qt.ErrorMatches(execute("report", path, "--json"), c.want))
	}
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	qt.Check(t, qt.ErrorMatches(execute("report", path), "there is no such file: .*`ttmem run -- COMMAND` makes a recording"))
}
