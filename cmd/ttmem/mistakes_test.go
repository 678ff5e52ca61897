package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/tracer/recording"
)

// A mistake is a command line that a user may type, and the advice that ttmem prints.
type mistake struct {
	// line is the command line; words with blanks are in quotes.
	line string
	// remedy is in the message.
	remedy string
}

// mistakes are those that every user can make. model.ttmem is a recording; the other files are
// made by mistakenFiles.
var mistakes = map[string][]mistake{
	"commands": {
		{`frob`, "`ttmem help` lists the commands"},
		{`--json xyzzy`, "`ttmem help` lists the commands"},
		{`--socket x atach`, "did you mean ttmem attach?"},
		{`atach -p 1`, "did you mean ttmem attach?"},
		{`Report model.ttmem`, "did you mean ttmem report or"},
		{`leak model.ttmem`, "or ttmem leaks?"},
		{`record -o x -- true`, "did you mean ttmem run or ttmem attach or ttmem report?"},
		{`model.ttmem`, "`ttmem report model.ttmem` shows a recording"},
		{`missing.ttmem`, "there is no file missing.ttmem"},
		{`sh model.sh`, "`ttmem run -- sh model.sh` traces a program"},
		{`-- python model.py`, "`ttmem run -- python model.py` traces a program"},
		{`help frob`, "`ttmem help` lists the commands"},
		{`help run leaks`, "ttmem help run"},
		{`completion tcsh`, "choose bash, fish"},
		{`completion`, "choose bash, fish"},
		{`completion ""`, "`ttmem completion --help` shows examples"},
		{`help ""`, "`ttmem help` lists the commands"},
		{`"" model.ttmem`, "`ttmem help` lists the commands"},
		{`completion bash x`, "leave out x"},
		{`version x`, "leave out x"},
		{`man`, "ttmem man /usr"},
		{`mcp a b`, "calls may name others"},
		{`mcp model.ttmem --json`, "leave it out"},
		{`man missing`, "man missing/ttmem-advise.1: no such file or directory; name a file that can be written"},
	},
	"flags": {
		{`--frob`, "flags follow a command: `ttmem help` lists the commands"},
		{`dump model.ttmem --regoin DRAM`, "did you mean --region?"},
		{`dump model.ttmem --lim 5`, "did you mean --limit?"},
		{`run --out x -- true`, "did you mean --output?"},
		{`peak model.ttmem --at peak`, "`ttmem peak --help` lists the flags"},
		{`run -o`, "missing FILE; `ttmem run --help` lists the flags"},
		{`run -z -- true`, "`ttmem run --help` lists the flags"},
		{`dump --=x`, "`ttmem dump --help` lists the flags"},
		{`dump model.ttmem -n`, "missing N"},
		{`dump model.ttmem -n -1`, "0 lists all"},
		{`dump model.ttmem -n x`, "not a number"},
		{`dump model.ttmem -n 1.5`, "not a whole number"},
		{`dump model.ttmem --json=maybe`, "write --json"},
		{`dump model.ttmem --by typo`, "choose stack, op"},
		{`dump model.ttmem --grep (`, "not a regular expression: missing closing )"},
		{`mark warm --json`, "leave it out"},
		{`doctor --socket x`, "leave it out"},
		{`top model.ttmem --json`, "leave it out"},
		{`dump model.ttmem --rules missing`, "name a file that can be read"},
		{`dump model.ttmem --rules dir`, "name a file that can be read"},
		{`dump model.ttmem --rules text`, "a line is REGEXP -> COMPONENT"},
		{`leaks model.ttmem --suppress missing`, "name a file that can be read"},
		{`leaks model.ttmem --suppress unclosed`, "not a regular expression"},
		{`leaks model.ttmem --fail-above -1`, "give one such as 64KiB"},
		{`leaks model.ttmem --fail-above lots`, "give one such as 64KiB"},
		{`leaks model.ttmem --utc`, "leave it out; --json has wall-clock times"},
		{`ops model.ttmem --utc`, "leave it out; --json has wall-clock times"},
		{`doctor --utc`, "leave it out"},
		{`report model.ttmem --rules text`, "leave it out"},
		{`log model.ttmem --address ""`, "--address is empty: a shell variable may be unset"},
		{`dump model.ttmem --chip ""`, "--chip is empty: a shell variable may be unset"},
		{`attach --duration ""`, "--duration is empty: a shell variable may be unset"},
		{`log model.ttmem --kind ""`, "--kind is empty: a shell variable may be unset"},
		{`dump model.ttmem --grep ""`, "--grep is empty: a shell variable may be unset"},
		{`dump model.ttmem --rules ""`, "--rules is empty: a shell variable may be unset"},
		{`dump model.ttmem --by stack,op`, "choose stack, op"},
		{`map model.ttmem --by op`, "`ttmem map --help` lists the flags"},
		{`report model.ttmem --utc=yes`, "write --utc"},
		{`dump model.ttmem -n 99999999999999999999`, "too large"},
		{`diff model.ttmem model.ttmem --fail-above x`, "give one such as 64KiB"},
		{`leaks model.ttmem --suppress ""`, "--suppress is empty: a shell variable may be unset"},
		{`leaks model.ttmem --suppress dir`, "name a file that can be read"},
	},
	"chips and regions": {
		{`dump model.ttmem --region dram2`, "choose DRAM, L1"},
		{`map model.ttmem --region CB`, "circular buffers are in the map of L1"},
		{`leaks model.ttmem --region CB`, "choose DRAM, L1, L1_SMALL"},
		{`dump model.ttmem --chip 99`, "available: chip 0"},
		{`dump model.ttmem --chip 0,1`, "available: chip 0"},
		{`dump model.ttmem --region DRAM,`, "choose DRAM, L1"},
		{`dump model.ttmem --region ""`, "--region is empty: a shell variable may be unset"},
		{`log model.ttmem --region CB,FOO`, "choose DRAM, L1, CB"},
		{`dump model.ttmem --chip -1`, "0-7"},
		{`dump model.ttmem --chip x`, "give one such as 3"},
		{`dump model.ttmem --chip 7-0`, "give one such as 3"},
		{`map model.ttmem --chip 99`, "available: chip 0"},
		{`peak model.ttmem --chip 99`, "available: chip 0"},
		{`leaks model.ttmem --chip 99`, "available: chip 0"},
	},
	"processes": {
		{`attach 4242`, "did you mean ttmem attach -p 4242?"},
		{`attach -- python model.py`, "`ttmem run -- COMMAND` starts a command"},
		{`attach -p 0`, "`pgrep -af python` finds them"},
		{`attach -p -1`, "`pgrep -af python` finds them"},
		{`attach -p 1,x`, "`pgrep -af python` finds them"},
		{`attach -p abc`, "`pgrep -af python` finds them"},
		{`dump model.ttmem -p 0`, "`pgrep -af python` finds them"},
		{`diff model.ttmem -p 0`, "`pgrep -af python` finds them"},
		{`report model.ttmem -p 99`, "`ttmem report` without -p lists the processes"},
		{`dump model.ttmem --at peak -p 99`, "available: PID 22323"},
		{`leaks model.ttmem -p 99`, "available: PID 22323"},
		{`peak model.ttmem -p 99`, "available: PID 22323"},
		{`oom model.ttmem -p 99`, "available: PID 22323"},
		{`log model.ttmem -p 99`, "available: PID 22323"},
		{`top model.ttmem --once -p 99`, "available: PID 22323"},
		{`report model.ttmem -p 1 -p 2`, "give -p once"},
		{`map model.ttmem -p 99`, "available: PID 22323"},
		{`ops model.ttmem -p 99`, "available: PID 22323"},
		{`diff model.ttmem model.ttmem -p 99`, "available: PID 22323"},
		{`attach model.ttmem`, "give a process id with -p PID"},
		{`doctor model.ttmem`, "give the path of a libtt_metal.so"},
		{`steps`, "ttmem steps -p 4242"},
		{`steps 4242`, "ttmem steps -p PID"},
		{`steps -p 1 -p 2`, "give -p once"},
	},
	"moments": {
		{`dump model.ttmem --at nonsense`, "there are token"},
		{`dump model.ttmem --at token#99`, "there are 30 of that name"},
		{`dump model.ttmem --at token#0`, "token#1 is the first"},
		{`dump model.ttmem --at failure#0`, "failure#1 is the first"},
		{`dump model.ttmem --at 1h`, "its last event is at"},
		{`diff model.ttmem --at peak`, "a second file"},
		{`diff model.ttmem model.ttmem --from token`, "--at selects the moment"},
		{`ops model.ttmem --from 5s`, "its last event is at"},
		{`ops --from warm`, "leave it out for running processes"},
		{`log --from warm`, "leave it out for running processes"},
		{`peak model.ttmem --duration 5s`, "give one of them"},
		{`top model.ttmem --interval 5`, "write 5s for seconds"},
		{`dump model.ttmem --at left`, "only diff takes left"},
		{`dump model.ttmem --at ""`, "--at is empty: a shell variable may be unset"},
		{`dump model.ttmem --at -1s`, "give one such as 2.5s"},
		{`dump model.ttmem --at 5`, "5s"},
		{`dump model.ttmem --at 500s`, "its last event is at"},
		{`dump model.ttmem --at failure`, "give another moment, such as peak"},
		{`map model.ttmem --at nonsense`, "there are token"},
		{`diff model.ttmem --from nonsense`, "there are token"},
		{`diff model.ttmem --to end`, "give both"},
		{`log model.ttmem --from 2s --to 1s`, "must be later than"},
		{`log model.ttmem --from token#3 --to begin`, "must be later than"},
		{`log model.ttmem --from failure`, "give another moment, such as peak"},
		{`ops model.ttmem --from peak --to begin`, "must be later than"},
		{`ops model.ttmem --to ""`, "--to is empty: a shell variable may be unset"},
		{`leaks model.ttmem --from warm`, "there are token"},
		{`leaks model.ttmem --from token#9 --to token#3`, "must be later than"},
		{`leaks model.ttmem --from end --to begin`, "must be later than"},
		{`leaks model.ttmem --from 500s`, "its last event is at"},
		{`leaks model.ttmem --from ""`, "--from is empty: a shell variable may be unset"},
		{`run --no-stacks --full-stacks -- true`, "leave out --no-stacks"},
		{`doctor missing.so`, "give the path of a libtt_metal.so"},
		{`doctor 999999999`, "`pgrep -af python` finds those of Python"},
		{`dump model.ttmem --color=blue`, "choose always, auto or never"},
		{`serve --color=never`, "leave it out"},
		{`attach --duration 5`, "write 5s for seconds"},
		{`attach --duration -5s`, "write 5s"},
		{`attach --duration soon`, "give one such as 500ms"},
		{`top model.ttmem --once --interval 0`, "choose from 100ms to 1h"},
		{`log model.ttmem --kind typo`, "choose alloc, free"},
		{`log model.ttmem --buffer x`, "give an id such as 1234"},
		{`log model.ttmem --address x`, "give one such as 0x1c40"},
		{`log model.ttmem --json --stacks`, "leave out --stacks"},
	},
	"input": {
		{`report missing.ttmem`, "`ttmem run -- COMMAND` makes a recording"},
		{`report dir`, "name a recording in it"},
		{`report ""`, "a shell variable may be unset"},
		{`diff model.ttmem ""`, "name a recording"},
		{`report empty`, "record again"},
		{`report text`, "`ttmem run -o FILE -- COMMAND` makes one"},
		{`report core`, "`ttmem run -o FILE -- COMMAND` makes one"},
		{`report events.jsonl`, "`ttmem run -o FILE -- COMMAND` makes one"},
		{`report older`, "record it again"},
		{`report newer`, "install a newer one"},
		{`report header`, "record again"},
		{`report damaged`, "record again"},
		{`leaks header`, "record again"},
		{`top text --once`, "`ttmem run -o FILE -- COMMAND` makes one"},
		{`diff model.ttmem missing.ttmem`, "`ttmem run -- COMMAND` makes a recording"},
		{`report a b`, "one file at a time"},
		{`dump a b`, "ttmem dump model.ttmem"},
		{`diff a b c`, "ttmem diff A B"},
		{`diff`, "ttmem diff yesterday.ttmem today.ttmem"},
		{`diff model.ttmem`, "a second file"},
		{`dump -- python model.py`, "ttmem run -o FILE -- python model.py"},
		{`report -- python model.py`, "ttmem run -o FILE -- python model.py"},
		{`report http://host/model.ttmem`, "makes a recording"},
		{`top model.ttmem -- true`, "give one of them"},
		{`leaks --`, "ttmem leaks -- python model.py"},
		{`leaks python model.py`, "put a command after --"},
		{`leaks model.ttmem -- true`, "give one of them"},
		{`leaks -p 1 -- true`, "give one of them"},
	},
	"output": {
		{`run`, "ttmem run -- python model.py"},
		{`run -o x`, "ttmem run -- python model.py"},
		{`run -o -- true`, "name a file"},
		{`run -o - -- true`, "name a file"},
		{`run -o "" -- true`, "-o is empty: a shell variable may be unset"},
		{`run -o x --no-record -- true`, "leave out -o"},
		{`run --force -- true`, "give -o FILE"},
		{`run --keep 3 -o x -- true`, "--keep needs --max-size"},
		{`run --keep -1 -o x -- true`, "0 keeps all"},
		{`run --keep 1 --max-size 1MiB -o x -- true`, "give 2 or more"},
		{`run --keep many -o x -- true`, "not a number"},
		{`run --max-size 1 -o x -- true`, "give 64KiB or more"},
		{`run --max-size big -o x -- true`, "give one such as 64KiB"},
		{`serve --max-size 1MiB`, "give -o too"},
		{`serve -o ""`, "-o is empty: a shell variable may be unset"},
		{`html`, "missing recording: ttmem html model.ttmem"},
		{`html -- python model.py`, "ttmem run -o FILE -- python model.py"},
		{`html missing.ttmem`, "there is no such file"},
		{`html text`, "is not a ttmem recording"},
		{`html dir`, "name a recording"},
		{`html model.ttmem model.ttmem`, "one file at a time"},
		{`html model.ttmem -o dir`, "name a file that can be written"},
		{`html model.ttmem -o missing/x.html`, "name a file that can be written"},
		{`html model.ttmem -o link.ttmem`, "is the recording itself: name another file"},
		{`html model.ttmem -o ""`, "-o is empty: a shell variable may be unset"},
		{`html model.ttmem -p 1 -o x`, "no such process"},
		{`run --no-record --max-size 1MiB -- true`, "leave out -o, --max-size and --keep"},
		{`serve x`, "it traces the whole host"},
		{`export`, "ttmem export model.ttmem --to pprof"},
		{`export model.ttmem`, "choose pprof"},
		{`export model.ttmem --to html`, "choose pprof"},
		{`export model.ttmem --to ""`, "--to is empty: a shell variable may be unset"},
		{`export missing.ttmem --to pprof -o x`, "`ttmem run -- COMMAND` makes a recording"},
		{`export text --to pprof -o x`, "`ttmem run -o FILE -- COMMAND` makes one"},
		{`export model.ttmem --to pprof -o link.ttmem`, "is the recording itself: name another file"},
		{`export model.ttmem --to pprof -o missing/x`, "name a file that can be written"},
		{`export model.ttmem --to pprof -o dir`, "name a file that can be written"},
		{`export model.ttmem --to pprof -o ""`, "-o is empty: a shell variable may be unset"},
		{`export model.ttmem --to flamegraph`, "`ttmem html FILE` writes a page with the flame graph"},
		{`export model.ttmem --to speedscope`, "speedscope opens the files of --to pprof and --to folded"},
		{`export model.ttmem --to perfetto --at peak`, "--at has no effect on --to perfetto"},
		{`export model.ttmem --to pprof --all-frames`, "--all-frames has no effect on --to pprof"},
		{`log model.ttmem --all-frames`, "--all-frames needs --stacks"},
		{`export model.ttmem --to folded --by op`, "choose stack, or owner"},
		{`export model.ttmem --to folded --value most`, "choose alloc_objects"},
		{`export model.ttmem --to folded --at begin`, "choose another --value or --at"},
		{`export model.ttmem --to folded --at nonsense`, "there are token"},
		{`export model.ttmem --to folded -p 99`, "available: PID 22323"},
		{`export model.ttmem --to folded -p 0`, "`pgrep -af python` finds them"},
		{`export a b --to pprof`, "ttmem export model.ttmem"},
		{`export -- python model.py`, "ttmem run -o FILE -- python model.py"},
		{`export model.ttmem --to sqlite --at peak -o x`, "--at has no effect on --to sqlite: leave it out"},
		{`export model.ttmem --to perfetto -p 99 -o x`, "available: PID 22323"},
		{`export text --to sqlite -o x`, "`ttmem run -o FILE -- COMMAND` makes one"},
		{`export nostacks.ttmem --to pprof -o x`, "record without --no-stacks"},
		{`export nostacks.ttmem --to visualizer -o x`, "record without --no-stacks"},
		{`export model.ttmem --to visualizer -o .`, "name a new one"},
		{`export model.ttmem --to visualizer -o -`, "writes a folder: name one"},
		{`export model.ttmem --to visualizer -o x --ops 9..7`, "the last operation is before the first"},
		{`export model.ttmem --to visualizer -o x --ops 9999..`, "there are"},
		{`export model.ttmem --to visualizer -o x --at peak`, "--at has no effect on --to visualizer"},
		{`export model.ttmem --to pprof -o x --ops 1`, "--ops has no effect on --to pprof"},
		{`export model.ttmem --to visualizer -o x -p 99`, "available: PID 22323"},
	},
	"services": {
		{`mark`, "ttmem mark warm"},
		{`mark a b`, `ttmem mark "a b"`},
		{`mark warm --socket missing`, "sudo ttmem serve --socket missing"},
		{`mark warm --socket text`, "give the path of one"},
		{`mark ""`, "ttmem mark warm"},
		{`serve --socket ""`, "--socket is empty: a shell variable may be unset"},
		{`report --socket missing`, "sudo ttmem serve --socket missing"},
		{`dump --socket dir`, "give the path of one"},
		{`top --once --socket missing`, "sudo ttmem serve --socket missing"},
		{`report model.ttmem --socket x`, "give one of them"},
	},
}

// mistakesOfUsers are those of users other than root.
var mistakesOfUsers = []mistake{
	{`run -- true`, "tracing needs root"},
	{`attach`, "tracing needs root"},
	{`serve`, "run it with sudo"},
	{`dump -p 1`, "sudo"},
	{`top --once`, "sudo"},
	{`report secret`, "only the user who recorded it, or root with sudo, can read it"},
	{`export model.ttmem --to pprof -o secret`, "name a file that can be written"},
}

// TestMistakes: each has one line that says what to do, in ttmem's own words.
func TestMistakes(t *testing.T) {
	defer unix.Umask(unix.Umask(0o022)) // which commands change, also those of other tests
	mistakenFiles(t)
	t.Setenv("TTMEM_SOCKET", "missing.sock")
	count := len(mistakesOfUsers)
	for kind, list := range mistakes {
		t.Run(kind, func(t *testing.T) {
			for _, m := range list {
				stdout, stderr, status := runOnStreams(t, false, words(m.line))
				m.check(t, stdout, stderr, status)
			}
		})
		count += len(list)
	}
	t.Run("users", func(t *testing.T) {
		for _, m := range mistakesOfUsers {
			cmd := exec.Command("./ttmem", words(m.line)...)
			cmd.Env = append(os.Environ(), asCommand+"=1")
			if os.Geteuid() == 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			var stdout, stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = &stdout, &stderr
			if err := cmd.Run(); cmd.ProcessState == nil {
				t.Fatal(err)
			}
			m.check(t, stdout.String(), stderr.String(), cmd.ProcessState.ExitCode())
		}
	})
	t.Logf("%d mistakes", count)
}

// words are the words of a command line; "" is an empty one.
func words(line string) []string {
	list := strings.Fields(line)
	for i, word := range list {
		list[i] = strings.Trim(word, `"`)
	}
	return list
}

// notForUsers are Go's own words, and those of packages.
const notForUsers = `(?s).*(strconv|pflag|syntax error|invalid |parsing |dial |EOF| open |%!).*`

func (m mistake) check(t *testing.T, stdout, stderr string, status int) {
	t.Helper()
	comment := qt.Commentf("ttmem %s\n%s%s", m.line, stdout, stderr)
	want := 1
	if strings.HasPrefix(m.line, "run") {
		want = runFailed
	}
	qt.Check(t, qt.Equals(status, want), comment)
	qt.Check(t, qt.Equals(stdout, ""), comment)
	qt.Check(t, qt.Matches(stderr, "ttmem: .*\n"), comment) // a single line
	qt.Check(t, qt.StringContains(stderr, m.remedy), comment)
	qt.Check(t, qt.Not(qt.Matches(stderr, notForUsers)), comment)
	t.Logf("%s\n%s", m.line, stderr)
}

// mistakenFiles makes a recording and files that are none, in a folder that all users can read.
func mistakenFiles(t *testing.T) {
	story := readStory(t, storyEvents(goldenFolder, "leak"))
	noStacks, err := os.ReadFile(smallRecording(t, 0o644))
	qt.Assert(t, qt.IsNil(err))
	shareFolder(t)
	story.record(t, "model.ttmem", 200)
	model, err := os.ReadFile("model.ttmem")
	qt.Assert(t, qt.IsNil(err))
	changed := func(at int, to byte) []byte {
		b := bytes.Clone(model)
		b[at] = to
		return b
	}
	const version = 8 // is where the format is
	for name, content := range map[string][]byte{
		"empty": nil, "text": []byte("hello\n"), "unclosed": []byte("(\n"), "events.jsonl": []byte("{\"v\": 1}\n"),
		"core":  append([]byte("\x7fELF\x02\x01\x01"), make([]byte, 4096)...),
		"older": changed(version, recording.Format-1), "newer": changed(version, recording.Format+1),
		"nostacks.ttmem": noStacks, "header": model[:20], "damaged": changed(30, model[30]^0xff), "secret": model,
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(name, content, 0o644)), qt.Commentf("%s", name))
	}
	qt.Assert(t, qt.IsNil(os.Chmod("secret", 0)))
	qt.Assert(t, qt.IsNil(os.Chmod("model.ttmem", 0o644)))
	qt.Assert(t, qt.IsNil(os.Mkdir("dir", 0o755)))
	qt.Assert(t, qt.IsNil(os.Symlink("model.ttmem", "link.ttmem")))
}

// shareFolder changes to a folder that all users can read, with this program as ttmem.
func shareFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	for dir := "."; ; dir += "/.." { // which testing makes for its own user
		path, err := filepath.Abs(dir)
		qt.Assert(t, qt.IsNil(err))
		if path == filepath.Clean(os.TempDir()) {
			break
		}
		qt.Assert(t, qt.IsNil(os.Chmod(dir, 0o755)))
	}
	self, err := os.ReadFile(os.Args[0]) // in a folder of root's
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile("ttmem", self, 0o755)))
}
