package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/go-quicktest/qt"
	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	ttmemterm "ttmem/cmd/ttmem/internal/term"
	"ttmem/tracer/event"
)

var (
	updateGolden  = flag.Bool("update", false, "write the golden files of TestGolden")
	updateStories = flag.String("update-stories", "", "make the events of TestGolden from those recordings that are in the `folder`, where `go test ./e2e -run TestRecordStories -stories folder` leaves them")
	keepStories   = flag.String("keep-stories", "", "leave the recordings of TestGolden in the new `folder`, to be looked at")
)

// goldenFolder has a folder for each story: events.jsonl.zst, and what commands print.
const goldenFolder = "testdata/golden"

// A goldenCommand is a command line that reads a recording.
type goldenCommand struct {
	// name is that of its golden files: NAME.txt is the text on a terminal of 100
	// columns, and NAME.json what --json prints.
	name string
	// args are the command and its flags, with blanks between them (goldenStory).
	args string
	// form is the one form that is compared; "": both are.
	form goldenForm
	// exported is called with the file that the command wrote, out, and gives what is
	// compared in place of what it prints; nil: the command writes no file.
	exported func(t *testing.T, file []byte) string
	// piped is true where standard output is not a terminal for the text either: 100 columns
	// are what the command takes then, without colors and bold letters.
	piped bool
	// uneven marks what is different where the recording has many checkpoints: then it is
	// not compared.
	uneven bool
}

// A goldenForm is a form that commands print, and the ending of its golden files.
type goldenForm string

const (
	goldenText goldenForm = "txt"
	goldenJSON goldenForm = "json"
)

// TestGolden runs every command that reads a recording on recordings of real programs, and
// compares what it prints with the golden files. The recordings are written anew by the
// writer of this tree: once as they come, and once with many checkpoints, with which
// everything has to be the same.
func TestGolden(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	t.Setenv("LC_ALL", "C.UTF-8")
	local := time.Local
	t.Cleanup(func() { time.Local = local })
	time.Local = time.UTC
	root, err := filepath.Abs(goldenFolder)
	qt.Assert(t, qt.IsNil(err))
	if *updateStories != "" {
		found := 0
		for _, s := range goldenStories {
			from := filepath.Join(*updateStories, s.name+".ttmem")
			if _, err := os.Stat(from); errors.Is(err, os.ErrNotExist) {
				continue // it stays
			}
			found++
			convertStory(t, from, storyEvents(root, s.name))
		}
		qt.Assert(t, qt.IsTrue(found > 0), qt.Commentf("no recordings of stories in %s", *updateStories))
	}
	dir := t.TempDir()
	if *keepStories != "" {
		dir = *keepStories
		qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o755)))
	}
	t.Chdir(dir) // recordings are named without a folder on all pages
	t.Run("as they come", func(t *testing.T) { checkStories(t, root, 0) })
	qt.Assert(t, qt.IsNil(os.Mkdir("checkpoints", 0o755)))
	t.Chdir("checkpoints")
	t.Run("checkpoints", func(t *testing.T) { checkStories(t, root, storyCheckpoint) })
}

// checkStories records all stories in the current folder, and asks them everything.
func checkStories(t *testing.T, root string, checkpointEvents int) {
	t.Helper()
	qt.Assert(t, qt.IsNil(os.WriteFile("model.rules", []byte(goldenRules), 0o600)))
	pids := make(map[string][]string)
	for _, s := range goldenStories {
		stream := readStory(t, storyEvents(root, s.name))
		stream.record(t, s.name+".ttmem", checkpointEvents)
		for _, e := range stream.events {
			if e.Kind == event.ProcessStart {
				pids[s.name] = append(pids[s.name], strconv.Itoa(e.PID))
			}
		}
	}
	for _, s := range goldenStories {
		for _, c := range s.commands {
			for _, form := range []goldenForm{goldenText, goldenJSON} {
				if c.form != "" && c.form != form || c.uneven && checkpointEvents > 0 {
					continue
				}
				path := filepath.Join(root, s.name, c.name+"."+string(form))
				t.Run(s.name+"/"+filepath.Base(path), func(t *testing.T) {
					checkGoldenFile(t, path, c.run(t, form, c.argsFor(s.name, pids[s.name])), *updateGolden && checkpointEvents == 0)
				})
			}
		}
	}
}

// TestEveryGoldenFileIsCompared finds files that a command left which is no more asked.
func TestEveryGoldenFileIsCompared(t *testing.T) {
	compared := make(map[string]bool)
	for _, name := range stepStories {
		compared[stepsFile(name)] = true
	}
	for _, s := range goldenStories {
		compared[storyEvents(goldenFolder, s.name)] = true
		for _, c := range s.commands {
			for _, form := range []goldenForm{goldenText, goldenJSON} {
				if c.form == "" || c.form == form {
					compared[filepath.Join(goldenFolder, s.name, c.name+"."+string(form))] = true
				}
			}
		}
	}
	files, err := filepath.Glob(goldenFolder + "/*/*")
	qt.Assert(t, qt.IsNil(err))
	for _, file := range files {
		qt.Check(t, qt.IsTrue(compared[file]), qt.Commentf("remove %s", file))
	}
}

// storyEvents is where the events of a story are.
func storyEvents(root, story string) string { return filepath.Join(root, story, "events.jsonl.zst") }

// checkGoldenFile compares with a golden file, or writes it.
func checkGoldenFile(t *testing.T, path, got string, update bool) {
	t.Helper()
	if update {
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(got), 0o644)))
	}
	want, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	if got != string(want) {
		t.Errorf("%s is not what is printed now; -update writes it:\n%s", filepath.Base(path), firstDifference(string(want), got))
	}
}

// differenceLines is how many lines of a difference are shown.
const differenceLines = 12

// firstDifference is the first lines that are different, with the line before them.
func firstDifference(want, got string) string {
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	begin := 0
	for begin < min(len(a), len(b)) && a[begin] == b[begin] {
		begin++
	}
	for len(a) > begin && len(b) > begin && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var text strings.Builder
	fmt.Fprintf(&text, "from line %d: -%d +%d lines\n", begin+1, len(a)-begin, len(b)-begin)
	if begin > 0 {
		fmt.Fprintf(&text, "  %s\n", a[begin-1])
	}
	for _, side := range []struct {
		sign  string
		lines []string
	}{{"-", a[begin:]}, {"+", b[begin:]}} {
		for i, line := range side.lines {
			if i == differenceLines {
				fmt.Fprintf(&text, "%s … %d more\n", side.sign, len(side.lines)-i)
				break
			}
			fmt.Fprintf(&text, "%s %s\n", side.sign, line)
		}
	}
	return text.String()
}

// run gives what the command prints on standard output, then what it prints on standard
// error, and its exit status if it fails.
func (c *goldenCommand) run(t *testing.T, form goldenForm, args []string) string {
	t.Helper()
	if form == goldenJSON && c.exported == nil {
		args = append(args, "--json")
	}
	out, errs, status := runOnStreams(t, form == goldenText && !c.piped, args)
	switch {
	case c.exported != nil:
		file, err := os.ReadFile("out")
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.Remove("out")))
		out, errs = c.exported(t, supplements.ReplaceAll(file, nil)), ""
	case form == goldenJSON:
		out = brokenJSON(t, string(supplements.ReplaceAll([]byte(out), nil)))
	}
	if errs != "" {
		out += "--- standard error\n" + errs
	}
	if status != 0 {
		out += fmt.Sprintf("--- exit status %d\n", status)
	}
	return out
}

// supplements are left out of golden files: TestTimesByTheWallClock and TestUsersStandBesidePIDs
// check them.
var supplements = regexp.MustCompile(`,"(\w+_)?wall_ns":\d+|,"user":"[^"]*"`)

// goldenColumns is the width of the terminal.
const goldenColumns = 100

// runOnStreams runs a command and gives what it writes to its standard output, which is a
// terminal or a file, and to standard error, which is a file.
func runOnStreams(t *testing.T, terminal bool, args []string) (out, errs string, status int) {
	t.Helper()
	if terminal {
		return runSized(t, &unix.Winsize{Row: 50, Col: goldenColumns}, args)
	}
	return runSized(t, nil, args)
}

// runSized is runOnStreams on a terminal of a size; nil: a file.
func runSized(t *testing.T, size *unix.Winsize, args []string) (out, errs string, status int) {
	t.Helper()
	return onStreams(t, size, nil, func() int { return run(args) })
}

// onStreams gives what a function writes to standard output and to standard error, each on a
// terminal of a size; nil: a file.
func onStreams(t *testing.T, size, errSize *unix.Winsize, do func() int) (out, errs string, status int) {
	t.Helper()
	stdout, stderr := os.Stdout, os.Stderr
	defer func() { os.Stdout, os.Stderr = stdout, stderr }()
	var endOut, endErrs func() string
	os.Stdout, endOut = openStream(t, size)
	os.Stderr, endErrs = openStream(t, errSize)
	status = do()
	ttmemterm.Flush()
	return endOut(), endErrs(), status
}

// openStream opens a terminal of a size or, for nil, a file; end closes it and gives what was
// written to it.
func openStream(t *testing.T, size *unix.Winsize) (f *os.File, end func() string) {
	t.Helper()
	if size == nil {
		f, err := os.Create(filepath.Join(t.TempDir(), "out"))
		qt.Assert(t, qt.IsNil(err))
		return f, func() string {
			text, err := os.ReadFile(f.Name())
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsNil(f.Close()))
			return string(text)
		}
	}
	shown := make(chan string)
	f = openTerminal(t, size, shown)
	return f, func() string {
		// what is still on its way when a terminal is closed may be lost
		_, err := f.WriteString(terminalEnd)
		qt.Assert(t, qt.IsNil(err))
		text := <-shown
		qt.Assert(t, qt.IsNil(f.Close()))
		return text
	}
}

// terminalEnd is what is written to a terminal last.
const terminalEnd = "\x00end\x00"

// openTerminal opens a terminal, and sends all that was written to it before terminalEnd.
func openTerminal(t *testing.T, size *unix.Winsize, shown chan<- string) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	qt.Assert(t, qt.IsNil(err))
	fd := int(master.Fd())
	qt.Assert(t, qt.IsNil(unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, size)))
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	qt.Assert(t, qt.IsNil(err))
	_, err = term.MakeRaw(int(slave.Fd())) // ends of lines stay as they are
	qt.Assert(t, qt.IsNil(err))
	go func() {
		defer master.Close()
		var text []byte
		for part := make([]byte, 4096); !bytes.HasSuffix(text, []byte(terminalEnd)); {
			n, err := master.Read(part)
			if err != nil {
				break
			}
			text = append(text, part[:n]...)
		}
		shown <- progress.ReplaceAllString(strings.TrimSuffix(string(text), terminalEnd), "")
	}()
	return slave
}

// progress is what a terminal does not show any more: how far reading was.
var progress = regexp.MustCompile(`(\rreading: [^\r]*)*\r\x1b\[K`)

// goldenWidth is how long a line of JSON gets.
const goldenWidth = 160

// brokenJSON breaks the lines of JSON that a command prints, so that a difference can be
// read: what is short stays on one line. Nothing else changes.
func brokenJSON(t *testing.T, text string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		qt.Assert(t, qt.IsTrue(json.Valid([]byte(line))), qt.Commentf("%s", line))
		breakJSON(t, &b, json.RawMessage(strings.TrimSuffix(line, "\n")), "")
		b.WriteByte('\n')
	}
	return b.String()
}

func breakJSON(t *testing.T, b *strings.Builder, value json.RawMessage, indent string) {
	t.Helper()
	if len(indent)+len(value) <= goldenWidth || !strings.ContainsRune("{[", rune(value[0])) {
		b.Write(value)
		return
	}
	values := json.NewDecoder(bytes.NewReader(value))
	_, err := values.Token()
	qt.Assert(t, qt.IsNil(err))
	b.WriteByte(value[0])
	column := goldenWidth // where a line ends that numbers fill
	for i := 0; values.More(); i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		key := ""
		if value[0] == '{' {
			name, err := values.Token()
			qt.Assert(t, qt.IsNil(err))
			key = fmt.Sprintf("%q:", name)
		}
		var v json.RawMessage
		qt.Assert(t, qt.IsNil(values.Decode(&v)))
		column += len(v) + 1
		if key != "" || !unicode.IsDigit(rune(v[0])) || column > goldenWidth {
			b.WriteString("\n" + indent + " " + key)
			column = len(indent) + len(v) + 1
		}
		breakJSON(t, b, v, indent+" ")
	}
	b.WriteString("\n" + indent)
	b.WriteByte(value[len(value)-1])
}

// whole is what a command wrote to a file.
func whole(_ *testing.T, file []byte) string { return string(file) }

// pprofText is a profile as text.
func pprofText(t *testing.T, file []byte) string {
	t.Helper()
	p, err := profile.ParseData(file)
	qt.Assert(t, qt.IsNil(err))
	return p.String() + "\n"
}
