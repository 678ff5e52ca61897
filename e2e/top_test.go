package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/e2e/rig"
	"ttmem/e2e/scene"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// terminal is a tmux with one command in it, like a user's terminal.
type terminal struct {
	t      testing.TB
	socket string
	dir    string
}

// startTerminal runs a command in a terminal of this size. It records the terminal's
// settings before and after.
func startTerminal(t testing.TB, width, height int, env []string, args ...string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Fatal("tmux is not installed: apt-get install tmux")
	}
	term := &terminal{t: t, dir: t.TempDir()}
	term.socket = filepath.Join(term.dir, "tmux")
	script := `trap : INT; stty -g > before; "$@"; echo $? > status.new; stty -g > after; mv status.new status; sleep 600`
	cmd := exec.Command("tmux", append([]string{"-S", term.socket, "-u", "-f", "/dev/null", "new-session", "-d",
		"-x", strconv.Itoa(width), "-y", strconv.Itoa(height), "--", "sh", "-c", script, "sh"}, args...)...)
	cmd.Dir = term.dir
	cmd.Env = append(env, "LC_ALL=C.UTF-8", "TERM=xterm", "TMUX=")
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal shows:\n%s", term.screen())
		}
		_ = exec.Command("tmux", "-S", term.socket, "kill-server").Run()
	})
	return term
}

func (term *terminal) tmux(args ...string) string {
	out, err := exec.Command("tmux", append([]string{"-S", term.socket}, args...)...).CombinedOutput()
	if err != nil {
		term.t.Logf("tmux %v: %v: %s", args, err, out)
	}
	return string(out)
}

// screen is the terminal's content.
func (term *terminal) screen() string { return term.tmux("capture-pane", "-p") }

func (term *terminal) press(keys ...string) { term.tmux(append([]string{"send-keys"}, keys...)...) }

func (term *terminal) resize(width, height int) {
	term.tmux("resize-window", "-x", strconv.Itoa(width), "-y", strconv.Itoa(height))
}

// expect waits until the terminal shows something, and returns the screen.
func (term *terminal) expect(pattern string) string {
	term.t.Helper()
	re := regexp.MustCompile(pattern)
	for deadline := time.Now().Add(2 * time.Minute * patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if screen := term.screen(); re.MatchString(screen) {
			return screen
		}
	}
	term.t.Fatalf("the terminal does not show %q:\n%s", pattern, term.screen())
	return ""
}

// end waits until the command has ended, and checks that it restored the terminal.
func (term *terminal) end(status string) {
	term.t.Helper()
	waitFor(term.t, "the command in the terminal ends", func() bool {
		_, err := os.Stat(filepath.Join(term.dir, "status"))
		return err == nil
	})
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(term.dir, name))
		qt.Assert(term.t, qt.IsNil(err))
		return strings.TrimSpace(string(text))
	}
	qt.Check(term.t, qt.Equals(read("status"), status))
	qt.Check(term.t, qt.Equals(read("after"), read("before")))
	qt.Check(term.t, qt.Equals(strings.TrimSpace(term.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}")), "0 1"))
}

// lineMarked is the marked line of a program, as FILE:LINE.
func lineMarked(t *testing.T, name, as string) string {
	t.Helper()
	text, err := os.ReadFile(program(t, name))
	qt.Assert(t, qt.IsNil(err))
	for i, line := range strings.Split(string(text), "\n") {
		if strings.HasSuffix(line, "# line: "+as) {
			return fmt.Sprintf("%s:%d", name, i+1)
		}
	}
	t.Fatalf("%s has no line %q", name, as)
	return ""
}

// topOf runs top on a real program in a terminal.
func topOf(t *testing.T, board rig.Board, width, height int, args ...string) *terminal {
	t.Helper()
	env := setup(t, "0.81.1", "3.10")
	under := env.Command(context.Background(), board, append([]string{program(t, "top_model.py")}, args...)...)
	command := append([]string{ttmem, "top", "--interval", "300ms", "--", under.Path}, under.Args[1:]...)
	return startTerminal(t, width, height, testEnviron(under.Env, board, t.TempDir()), command...)
}

// A real program on one chip: its leak is found with a mark and by its line, while the
// terminal's size changes.
func TestTop(t *testing.T) {
	t.Parallel()
	leak := lineMarked(t, "top_model.py", "leak")
	term := topOf(t, rig.N150, 80, 24, "100000", "0.02", "100")
	screen := term.expect(regexp.QuoteMeta(leak))
	qt.Check(t, qt.StringContains(screen, "chip 0"))
	qt.Check(t, qt.Matches(screen, `(?s).*DRAM .*MiB +12\.0 GiB.*L1 per core .*1328\.7 KiB.*largest program \d+\.\d KiB +█ tensors \d+\.\d KiB .*top_model\.py:22 ← :39.*top_model\.py:22 ← :27.*`))

	// nothing is freed of what a stack of the planted line leaks: it grows after a mark, as
	// the caches in L1 do
	term.press("r") // DRAM only
	term.press("m")
	screen = term.expect(`GROWTH[^\n]*\n[^\n]*\+\d+\.\d KiB +DRAM  ` + leak)
	qt.Check(t, qt.StringContains(screen, "mark "))
	// a refresh may come between an allocation of the loop and its free, but not each
	grows := regexp.MustCompile(`.*(` + regexp.QuoteMeta(leak) + `| \+24\.0 KiB .* churn ).*`)
	waitFor(t, "a look at which nothing else grew", func() bool {
		return !slices.ContainsFunc(lines(term.screen()), func(line string) bool {
			return strings.Contains(line, "+") && !grows.MatchString(line)
		})
	})

	term.press("Enter")
	screen = term.expect("innermost call first")
	qt.Check(t, qt.StringContains(screen, leak))
	term.press("a")
	term.expect("tt::tt_metal::")
	term.press("End")
	term.expect(`<module>`)
	term.press("Escape")
	term.expect("GROWTH")

	term.resize(200, 50)
	term.expect("CHIPS")
	term.resize(20, 5)
	term.expect(`too small: 20x5`)
	term.resize(80, 24)
	term.expect("GROWTH")

	term.press("o")
	term.expect(`step \d+`)
	term.press("o", "Space")
	paused := term.expect("PAUSED")
	waitFor(t, "a whole frame", func() bool {
		before := paused
		paused = term.screen()
		return paused == before
	})
	pid := pythonOfTop.FindStringSubmatch(paused)[1]
	sleeps := sleepsOf(t, pid)
	waitFor(t, "the program to go on for some intervals", func() bool { return sleepsOf(t, pid) > sleeps+50 })
	qt.Check(t, qt.Equals(term.screen(), paused))
	term.press("q")
	term.end("143") // the command was terminated
}

// pythonOfTop is the row of a program, with its id.
var pythonOfTop = regexp.MustCompile(`(?m)^ +(\d+) .* python`)

// However top ends, the terminal and the command are unharmed.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		end    func(term *terminal)
		status string
	}{
		{"Ctrl-C", func(term *terminal) { term.press("C-c") }, "143"},
		{"SIGTERM", func(term *terminal) { signalTop(term, "TERM") }, "143"},
		{"SIGHUP", func(term *terminal) { signalTop(term, "HUP") }, "129"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			term := topOf(t, rig.N150, 80, 24, "100000", "0.05")
			pid := pythonOfTop.FindStringSubmatch(term.expect(pythonOfTop.String()))[1]
			test.end(term)
			term.end(test.status)
			_, err := os.Stat("/proc/" + pid)
			qt.Check(t, qt.IsNotNil(err), qt.Commentf("PID %s still runs", pid))
		})
	}
}

// A command frees everything before it ends. The view stays at the last moment with live memory.
func TestTopStaysWhenTheCommandEnds(t *testing.T) {
	t.Parallel()
	leak := lineMarked(t, "top_model.py", "leak")
	term := topOf(t, rig.N150, 80, 24, "20", "0.01")
	screen := term.expect("The command has ended: this is its memory after its last allocation or run.")
	qt.Check(t, qt.StringContains(screen, "ended with status 0"))
	qt.Check(t, qt.StringContains(screen, leak))
	term.press("q")
	term.end("0")
}

// A recording is shown at its peak, and at other moments by keys and by the mouse.
func TestTopOfARecording(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "model.ttmem")
	file, err := os.Create(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	w, err := recording.NewWriter(file, recording.NewHeader())
	qt.Assert(t, qt.IsNil(err))
	s := scene.New(w.Add)
	s.Load()
	s.Emit(&event.Event{Kind: event.Mark, TimeNs: s.NowNs, Cause: "warm"})
	s.Steps(20)
	qt.Assert(t, qt.IsNil(w.Close(recording.End{})))

	term := startTerminal(t, 80, 24, os.Environ(), ttmem, "top", path)
	term.expect("peak of DRAM, chips 0-31") // no program ran while most of L1 was in use
	term.press("N")
	term.expect("peak of L1, chips 0-31")
	term.press("N")
	term.expect("mark warm")
	click := func(x, y int) { term.press("-l", fmt.Sprintf("\x1b[<0;%d;%dM\x1b[<0;%d;%dm", x, y, x, y)) }
	click(35, 2) // on the bar of the recording, counted from 1
	term.expect(`(?m)^ 1\d\.\d{3} s of 4\d\.\d{3} s `)
	waitFor(t, "a time before the training began", func() bool { return !strings.Contains(term.screen(), "train.py") })
	term.press("n", "n", "n", "n", "n", "n")
	term.expect(`41\.281 s of 41\.281 s`)
	term.press("q")
	term.end("0")
}

// signalTop sends a signal to the top in a terminal.
func signalTop(term *terminal, signal string) {
	shell := strings.TrimSpace(term.tmux("display-message", "-p", "#{pane_pid}"))
	out, err := exec.Command("pkill", "-"+signal, "-P", shell, "ttmem").CombinedOutput()
	qt.Assert(term.t, qt.IsNil(err), qt.Commentf("%s", out))
}

// A real program on the 32 chips of a Galaxy: they are one line until they are unfolded.
func TestTopManyChips(t *testing.T) {
	t.Parallel()
	term := topOf(t, rig.Galaxy, 80, 24, "100000", "0.05")
	screen := term.expect(regexp.QuoteMeta(lineMarked(t, "top_model.py", "leak")))
	qt.Check(t, qt.StringContains(screen, "chips 0-31  32 alike"))
	term.press("f")
	screen = term.expect(`chip DRAM +L1 +chip DRAM`)
	for id := range 32 {
		qt.Check(t, qt.Matches(screen, fmt.Sprintf(`(?s).*[\n ] +%d [^ ]+ +<?\d+%%.*`, id)))
	}
	term.resize(200, 50)
	term.press("c")
	term.expect("chips:")
	term.press("7", "Enter")
	screen = term.expect(`(?m)^ chip 7 `)
	qt.Check(t, qt.IsFalse(strings.Contains(screen, "chips 0-31")))
	term.press("q")
	term.end("143")
}

// busyTop is a terminal with top, through a service with 10,000 made-up events a second on 32 chips.
func busyTop(t testing.TB) *terminal {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "ttmem.sock")
	hub := service.NewHub(aggregate.New())
	server := service.NewServer(hub, service.Options{Version: "test"})
	listener, err := service.Listen(socket)
	qt.Assert(t, qt.IsNil(err))
	go func() { _ = server.ServeUnix(listener) }()
	t.Cleanup(server.Close)

	stop := make(chan struct{})
	done := make(chan struct{})
	events := 0
	s := scene.New(func(e *event.Event) {
		hub.Apply(e)
		events++
	})
	s.Load()
	hub.Flush()
	go func() {
		defer close(done)
		begun, first := time.Now(), events
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			for float64(events-first) < 10_000*time.Since(begun).Seconds() {
				s.Step()
			}
			hub.Flush()
		}
	}()
	t.Cleanup(func() { close(stop); <-done })
	return startTerminal(t, 80, 24, os.Environ(), ttmem, "top", "--socket", socket)
}

// pressed presses a key, and returns how long it took until the view changed.
func (term *terminal) pressed(key string) time.Duration {
	term.t.Helper()
	before, pressed := term.screen(), time.Now()
	term.press(key)
	for term.screen() == before {
		if time.Since(pressed) > time.Minute*patience {
			term.t.Fatalf("nothing happens after %s", key)
		}
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(pressed)
	if key == "Escape" {
		time.Sleep(200 * time.Millisecond) // otherwise the terminal reads Alt and the next key
	}
	return took
}

// With many events of many chips, the view shows their rate and reacts to each key.
func TestTopBusyHost(t *testing.T) {
	term := busyTop(t)
	screen := term.expect(`serve\.py:88`)
	for _, chips := range []string{"0-2,4-23", "24-31"} {
		qt.Check(t, qt.StringContains(screen, chips))
	}
	rate := ` [0-9.]+k? events/s`
	term.expect(rate)
	for _, size := range [][2]int{{200, 50}, {80, 24}, {132, 43}, {80, 24}} {
		term.resize(size[0], size[1])
		term.expect(`events/s`)
	}
	for _, key := range []string{"f", "g", "s", "p", "r", "]", "Escape", "m", "?", "Escape", "M"} {
		term.pressed(key)
	}
	term.expect(rate) // still
	term.press("q")
	term.end("0")
}

// BenchmarkTopBusyHost is part of `make bench`: how long the view takes to react to a key.
func BenchmarkTopBusyHost(b *testing.B) {
	term := busyTop(b)
	term.expect(`( 9[0-9]{3}| 1[01]\.[0-9]k) events/s`)
	slowest := time.Duration(0)
	for b.Loop() {
		for _, key := range []string{"f", "f", "r", "r", "?", "Escape"} {
			slowest = max(slowest, term.pressed(key))
		}
	}
	b.ReportMetric(slowest.Seconds()*1000, "key-ms")
	term.press("q")
	term.end("0")
}

// top prints one frame of a running program for scripts: live memory equals the library's
// own allocator.
func TestTopOnce(t *testing.T) {
	t.Parallel()
	env := setup(t, "0.81.1", "3.10")
	p := startTarget(t, env, rig.N150, program(t, "dump.py"))
	p.expect(t, "holding")
	out, err := exec.Command(ttmem, "top", "--once", "-p", strconv.Itoa(p.Process.Pid)).Output()
	qt.Assert(t, qt.IsNil(err))
	held := readCheckpoints(t, p.Dir)[0].Devices[0].Regions["DRAM"]
	bytes := float64(held.AllocatedPerBank*uint64(held.Banks)) / (1 << 20)
	qt.Check(t, qt.Matches(string(out), fmt.Sprintf(`(?s).*DRAM +[^\n]* %.1f MiB +%.1f MiB +12\.0 GiB\n.*`, bytes, bytes)))
	qt.Check(t, qt.StringContains(string(out), "held by local loaded of main() · bf16[256,256] TILE"))
	qt.Check(t, qt.IsFalse(strings.Contains(string(out), "\x1b")))
}

// Errors are one line, on an unchanged terminal.
func TestTopErrors(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no terminal", []string{"-p", "1"}, "standard output is not a terminal: ttmem top --once prints one frame"},
		{"an interval of nothing", []string{"--once", "--interval", "0s"}, "--interval 0s: choose from 100ms to 1h"},
		{"no file", []string{"--once", "/nowhere.ttmem"}, "there is no such file: /nowhere.ttmem; `ttmem run -- COMMAND` makes a recording"},
		{"once of a command", []string{"--once", "--", "true"}, "--once runs no command: ttmem run -- true traces one and reports"},
		{"no rules", []string{"--once", "--rules", "/nowhere", "/nowhere.ttmem"}, "--rules /nowhere: no such file or directory; name a file that can be read"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := exec.Command(ttmem, append([]string{"top"}, test.args...)...).CombinedOutput()
			qt.Check(t, qt.IsNotNil(err))
			qt.Check(t, qt.Equals(strings.TrimSpace(string(out)), "ttmem: "+test.want))
		})
	}
	for _, test := range []struct {
		name string
		args []string
		want string
	}{
		{"no such process", []string{"-p", "999999999"}, "ttmem: -p 999999999: no such process"},
		{"no such command", []string{"--", "no-such-command"}, "ttmem: no-such-command: no such command"},
		{"no such file", []string{"/nowhere.ttmem"}, "ttmem: there is no such file: /nowhere.ttmem"},
	} {
		t.Run(test.name, func(t *testing.T) {
			term := startTerminal(t, 80, 24, os.Environ(), append([]string{ttmem, "top"}, test.args...)...)
			term.expect(test.want)
			status := "1"
			if test.args[0] == "--" {
				status = "127"
			}
			term.end(status)
		})
	}
}
