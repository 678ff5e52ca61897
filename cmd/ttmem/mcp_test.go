package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"ttmem/docs"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// askAgent begins a session of the SDK's own client with a server whose calls are about a file. Other processes of
// this test are ttmem.
func askAgent(t *testing.T, file string) *mcp.ClientSession {
	t.Helper()
	t.Setenv(asCommand, "yes")
	server := toolServer{root: newRoot(), file: file, socket: filepath.Join(t.TempDir(), "none")}
	here, there := mcp.NewInMemoryTransports()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.server(ctx).Run(ctx, here)
	}()
	s, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(t.Context(), there, nil)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() {
		_ = s.Close()
		stop()
		<-ended
	})
	return s
}

// ask calls a tool with inputs in JSON.
func ask(t *testing.T, s *mcp.ClientSession, tool, inputs string) (texts []string, isError bool) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: json.RawMessage(inputs)})
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s %s", tool, inputs))
	for _, c := range r.Content {
		texts = append(texts, c.(*mcp.TextContent).Text)
	}
	return texts, r.IsError
}

// TestToolsAreCommandsThatOnlyRead: what an agent is told is in the help of commands, and no input names a file that
// is no recording.
func TestToolsAreCommandsThatOnlyRead(t *testing.T) {
	s := askAgent(t, live)
	list, err := s.ListTools(t.Context(), nil)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(list.Tools, len(tools)))
	said := s.InitializeResult().Instructions
	root := newRoot()
	root.InitDefaultHelpCmd()
	for i := range tools {
		c := tools[i].of(root)
		if c.Name() != "help" {
			qt.Check(t, qt.Matches(said, "(?s).*"+c.Name()+".*"))
		}
		qt.Check(t, qt.IsFalse(c.HasParent() && c.Parent().HasParent()))
		for _, name := range tools[i].flags {
			f := c.Flag(name)
			qt.Assert(t, qt.IsNotNil(f), qt.Commentf("--%s of %s", name, c.Name()))
			_, isFile := f.Annotations[cobra.BashCompFilenameExt]
			qt.Check(t, qt.IsFalse(isFile), qt.Commentf("--%s of %s", name, c.Name()))
		}
		for _, name := range tools[i].args {
			qt.Check(t, qt.Not(qt.Equals(arguments[name], "")))
		}
	}
	for _, tool := range list.Tools {
		qt.Check(t, qt.IsTrue(tool.Annotations.ReadOnlyHint))
		qt.Check(t, qt.Not(qt.Matches(tool.Description, "(?s)|.*(COMMAND|FILE is).*")), qt.Commentf("%s", tool.Name))
		for name, input := range tool.InputSchema.(map[string]any)["properties"].(map[string]any) {
			text := input.(map[string]any)["description"].(string)
			qt.Check(t, qt.Not(qt.Matches(text, "|.*(`|Ctrl-C).*")), qt.Commentf("%s: %s", tool.Name, name))
		}
	}
}

// TestPagesOfTheDocumentationFitAnAnswer, which agents get with help.
func TestPagesOfTheDocumentationFitAnAnswer(t *testing.T) {
	names, _ := docs.Pages()
	for _, name := range names {
		text, _ := docs.Page(name)
		qt.Check(t, qt.IsTrue(len(text) <= answerBytes && strings.Count(text, "\n") <= answerLines), qt.Commentf("%s: %d bytes", name, len(text)))
	}
}

// TestAnswersAreWhatCommandsPrint, with their warnings apart.
func TestAnswersAreWhatCommandsPrint(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"leak", "repaired", "fragments"} {
		story := readStory(t, storyEvents(goldenFolder, name))
		story.record(t, filepath.Join(dir, name+".ttmem"), 200)
	}
	t.Chdir(dir)
	one, two := writeEvents(t, "one.ttmem", batchEvents(1)), writeEvents(t, "two.ttmem", batchEvents(2))
	lost := writeEvents(t, "lost.ttmem", sharedHost(anna, ben))
	s := askAgent(t, "leak.ttmem")
	t.Setenv("COLUMNS", answerColumns)
	t.Setenv("LC_ALL", "C.UTF-8")
	for _, c := range []struct{ tool, inputs, line string }{
		{"report", `{}`, "report leak.ttmem"},
		{"report", `null`, "report leak.ttmem"},
		{"leaks", `{"region": "", "chip": [], "limit": null}`, "leaks leak.ttmem"},
		{"leaks", `{"from": "token#5", "to": "token#25", "chip": [0]}`, "leaks leak.ttmem --from token#5 --to token#25 --chip 0"},
		{"leaks", `{"json": true}`, "leaks leak.ttmem --json"},
		{"peak", `{"by": "op", "limit": 3, "region": ["DRAM", "L1"], "json": false}`, "peak leak.ttmem --by op -n 3 --region DRAM,L1"},
		{"oom", `{"file": "fragments.ttmem"}`, "oom fragments.ttmem"},
		{"oom", `{"without": ["story_leak.py:21"]}`, "oom leak.ttmem --without story_leak.py:21"},
		{"ops", `{"limit": 5}`, "ops leak.ttmem -n 5"},
		{"dump", `{"at": "token#30", "by": "file"}`, "dump leak.ttmem --at token#30 --by file"},
		{"dump", fmt.Sprintf(`{"file": %q, "limit": 2}`, lost), "dump " + lost + " -n 2"},
		{"diff", `{"file": "repaired.ttmem", "other": "leak.ttmem"}`, "diff repaired.ttmem leak.ttmem"},
		{"diff", `{"from": "token#10", "to": "token#20"}`, "diff leak.ttmem --from token#10 --to token#20"},
		{"advise", `{"limit": 1}`, "advise leak.ttmem -n 1"},
		{"fit", fmt.Sprintf(`{"file": %q, "other": %q, "param": "1,2"}`, one, two), "fit " + one + " " + two + " --param 1,2"},
		{"help", `{"page": "docs/status.md"}`, "help docs/status.md"},
	} {
		got, isError := ask(t, s, c.tool, c.inputs)
		comment := qt.Commentf("%s %s: %s", c.tool, c.inputs, got)
		out, errs, status := runOnStreams(t, false, strings.Fields(c.line))
		qt.Check(t, qt.Equals(status, 0), comment)
		qt.Check(t, qt.IsFalse(isError), comment)
		var want []string
		for _, text := range []string{out, strings.ReplaceAll("\n"+errs, "\nttmem: ", "\n")[1:]} {
			if text != "" {
				want = append(want, strings.TrimRight(text, "\n"))
			}
		}
		qt.Check(t, qt.DeepEquals(got, want), comment)
	}
}

// manyBuffers makes a recording of live buffers.
func manyBuffers(t *testing.T, count uint64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "many.ttmem")
	file, err := recording.Create(path, recording.FileOptions{})
	qt.Assert(t, qt.IsNil(err))
	e := event.Event{
		Kind: event.DeviceOpen, TimeNs: 1, PID: 7, Devices: []int{0}, Allocator: 1,
		Open: &event.Open{Capacities: [event.BankedRegions]event.Capacity{event.DRAM: {Banks: 12, BytesPerBank: 1 << 30, Base: 1 << 10}}},
	}
	file.Add(&e)
	stack := pagetest.At("ttnn.empty", 10)
	for id := range count {
		e = event.Event{
			Kind: event.Alloc, TimeNs: 2 + id, PID: 7, Devices: []int{0}, Allocator: 1, Region: event.DRAM, BufferID: id, Stack: stack,
			Address: 1 << 10 * (1 + id), SizeBytes: 12 << 10, PageSizeBytes: 1 << 10, BytesPerBank: 1 << 10, Banks: 12,
		}
		file.Add(&e)
		if id%1000 == 999 {
			qt.Assert(t, qt.IsNil(file.Flush()))
		}
	}
	qt.Assert(t, qt.IsNil(file.Close(recording.End{})))
	return path
}

// TestAnAnswerIsBounded: of a million rows an agent gets the first, and how many more there are.
func TestAnAnswerIsBounded(t *testing.T) {
	path := manyBuffers(t, 5000)
	s := askAgent(t, path)
	t.Setenv("COLUMNS", answerColumns)
	whole, _, _ := runOnStreams(t, false, []string{"dump", path, "-n", "1000000"})
	got, isError := ask(t, s, "dump", `{"limit": 1000000}`)
	qt.Assert(t, qt.HasLen(got, 2))
	qt.Check(t, qt.IsFalse(isError))
	qt.Check(t, qt.IsTrue(strings.HasPrefix(whole, got[0]+"\n")))
	qt.Check(t, qt.IsTrue(len(got[0]) <= answerBytes))
	left := strings.Count(whole, "\n") - strings.Count(got[0]+"\n", "\n")
	qt.Check(t, qt.IsTrue(left > 9000), qt.Commentf("%d", left))
	qt.Check(t, qt.Equals(got[1], fmt.Sprintf("%d more lines left out: an answer has at most 300 lines and 24.0 KiB; narrow it with limit, by, region, chip, grep, within, pid", left)))

	got, isError = ask(t, s, "dump", `{"limit": 1000000, "json": true}`)
	qt.Check(t, qt.IsTrue(isError))
	qt.Check(t, qt.Matches(strings.Join(got, "\n"), `the JSON of dump has [\d.]+ MiB, and an answer at most 24\.0 KiB: narrow it with limit, .*, or ask for text`))

	got, isError = ask(t, s, "dump", `{"limit": 3, "json": true}`) // and it goes on
	qt.Check(t, qt.IsFalse(isError))
	qt.Check(t, qt.Equals(json.Valid([]byte(got[0])), true))
}

// TestABoundedWriterKeepsWholeLines, however they are written.
func TestABoundedWriterKeepsWholeLines(t *testing.T) {
	for text, want := range map[string]struct {
		kept string
		left int
	}{
		"":                          {"", 0},
		"a\nb\nc":                   {"a\nb\nc", 0},
		"a\nb\nc\nd\n":              {"a\nb\nc\n", 1},
		"12345\n67890\n":            {"12345\n", 1},
		"1234567890123\nx\n":        {"", 2},
		"1\n2\n" + "345678\n90\nab": {"1\n2\n", 3},
	} {
		for _, piece := range []int{1, 2, 1000} {
			b := &bounded{lines: 3, bytes: 10}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(piece, len(rest)):] {
				_, _ = b.Write(rest[:min(piece, len(rest))])
			}
			qt.Check(t, qt.Equals(b.text(), want.kept), qt.Commentf("%q by %d", text, piece))
			if b.full {
				qt.Check(t, qt.Equals(b.leftOut(), want.left), qt.Commentf("%q by %d", text, piece))
			}
			qt.Check(t, qt.Equals(b.full, want.left > 0), qt.Commentf("%q by %d", text, piece))
		}
	}
}

// TestMistakesOfAgents: each has one line that says what to do, and nothing is run, written or traced.
func TestMistakesOfAgents(t *testing.T) {
	mistakenFiles(t)
	s := askAgent(t, live)
	model := `"file": "model.ttmem"`
	for _, m := range []struct{ tool, inputs, says string }{
		{"report", `{"file": "missing.ttmem"}`, `there is no such file: missing\.ttmem; .*`},
		{"report", `{"file": "text"}`, `text is not a ttmem recording: .*`},
		{"report", `{"file": "damaged"}`, `damaged.*`},
		{"report", `{"file": "header"}`, `header.*`},
		{"report", `{"file": "empty"}`, `empty.*`},
		{"dump", `{"file": "dir"}`, `dir.*`},
		{"dump", `{"file": "newer"}`, `newer.*`},
		{"dump", `{"file": "-"}`, `there is no such file: \./-; .*`},            // not standard input
		{"leaks", `{"file": "--"}`, `there is no such file: \./--; .*`},         // not the beginning of a command
		{"leaks", `{"file": "--json"}`, `there is no such file: \./--json; .*`}, // no flag
		{"leaks", `{"file": ["model.ttmem", "true"]}`, `leaks: file takes one text`},
		{"leaks", `{"file": {"path": "x"}}`, `leaks: file takes a text, a number or a list of these`},
		{"leaks", `["model.ttmem"]`, `leaks takes an object of inputs: file, from, .*`},
		{"leaks", `{` + model + `, "regoin": "L1"}`, `leaks has no input "regoin": did you mean region\?`},
		{"leaks", `{` + model + `, "fail-above": "1KiB"}`, `leaks has no input "fail-above": choose file, from, .*`},
		{"leaks", `{` + model + `, "duration": "1s"}`, `a file and --duration: give one of them`},
		{"dump", `{` + model + `, "limit": "x"}`, `-n x: not a number`},
		{"dump", `{` + model + `, "limit": -1}`, `-n -1: must not be negative; 0 lists all`},
		{"dump", `{` + model + `, "by": "typo"}`, `--by typo: choose stack, op, .*`},
		{"dump", `{` + model + `, "pid": 99}`, `-p 99: .*`},
		{"dump", `{` + model + `, "at": "nonsense"}`, `no mark nonsense in model\.ttmem: there are token.*`},
		{"dump", `{` + model + `, "json": "maybe"}`, `--json maybe: .*`},
		{"dump", `{` + model + `, "grep": "a\u0000b"}`, `.*invalid argument`},
		{"oom", `{` + model + `, "without": "model.py:99"}`, `--without model\.py:99: no allocation there; .*`},
		{"diff", `{` + model + `}`, `model\.ttmem alone cannot be compared: .*`},
		{"fit", `{}`, `fit takes two or three recordings: .*`},
		{"help", `{"page": "docs/none.md"}`, `there is no file docs/none\.md, .*`},
	} {
		got, isError := ask(t, s, m.tool, m.inputs)
		comment := qt.Commentf("%s %s: %q", m.tool, m.inputs, got)
		qt.Check(t, qt.IsTrue(isError), comment)
		qt.Check(t, qt.HasLen(got, 1), comment)
		qt.Check(t, qt.Matches(strings.Join(got, "\n"), m.says), comment)
	}
	// without a service, nothing is traced, as root neither
	for i := range tools {
		if tools[i].args[0] == "file" && tools[i].command != "fit" {
			for _, inputs := range []string{`{}`, `{"file": "live"}`, fmt.Sprintf(`{"pid": %d}`, os.Getpid())} {
				got, isError := ask(t, s, tools[i].command, inputs)
				if tools[i].command == "diff" {
					qt.Check(t, qt.IsTrue(isError))
					continue
				}
				qt.Check(t, qt.IsTrue(isError), qt.Commentf("%s", tools[i].command))
				qt.Check(t, qt.Matches(strings.Join(got, "\n"), `no ttmem service at .*/none: start one with .*`), qt.Commentf("%s %s", tools[i].command, inputs))
			}
		}
	}
	got, _ := ask(t, s, "diff", `{`+model+`, "pid": 1}`)
	qt.Check(t, qt.Matches(strings.Join(got, "\n"), `no ttmem service at .*`))
	_, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "run", Arguments: map[string]any{}})
	qt.Check(t, qt.ErrorMatches(err, `.*unknown tool "run"`))
}

// TestAgentsAskOfARecordingThatGrows: each answer has what is there by then.
func TestAgentsAskOfARecordingThatGrows(t *testing.T) {
	content, err := os.ReadFile(manyBuffers(t, 20_000))
	qt.Assert(t, qt.IsNil(err))
	path := filepath.Join(t.TempDir(), "grows.ttmem")
	s := askAgent(t, path)
	last := 0
	for part := 1; part <= 4; part++ {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, content[:len(content)*part/4], 0o600)))
		got, isError := ask(t, s, "dump", `{"by": "region"}`)
		qt.Assert(t, qt.IsFalse(isError), qt.Commentf("%q", got))
		row := strings.Fields(got[0])
		buffers, err := strconv.Atoi(row[len(row)-2])
		qt.Assert(t, qt.IsNil(err), qt.Commentf("%q", got))
		qt.Check(t, qt.IsTrue(buffers > last))
		last = buffers
	}
	qt.Check(t, qt.Equals(last, 20000))
}

// TestAgentsAskManyThingsAtOnce, and calls that are cancelled end their commands.
func TestAgentsAskManyThingsAtOnce(t *testing.T) {
	path := smallRecording(t, 0o644)
	s := askAgent(t, path)
	want, _ := ask(t, s, "report", `{}`)
	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			got, isError := ask(t, s, "report", `{}`)
			qt.Check(t, qt.IsFalse(isError))
			qt.Check(t, qt.DeepEquals(got, want))
		})
	}
	all.Wait()

	pipe := filepath.Join(t.TempDir(), "pipe")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(pipe, 0o600)))
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "leaks", Arguments: map[string]any{"file": pipe}})
		failed <- err
	}()
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0) // once the command reads it
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	cancel()
	qt.Check(t, qt.ErrorIs(<-failed, context.Canceled))
	for err = nil; err == nil; { // until its reader is gone
		_, err = w.Write(make([]byte, 4096))
	}
	qt.Check(t, qt.ErrorIs(err, unix.EPIPE))
	got, _ := ask(t, s, "report", `{}`)
	qt.Check(t, qt.DeepEquals(got, want))
}

// TestStandardOutputHasOnlyTheProtocol, and the end of input ends the command, which says what is wrong with it.
func TestStandardOutputHasOnlyTheProtocol(t *testing.T) {
	const begin = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}` + "\n"
	for input, errors := range map[string]string{"": "", "garbage\n": "ttmem: talking to the agent: .*\n"} {
		cmd := exec.Command("/proc/self/exe", "mcp", "none.ttmem")
		cmd.Env = append(os.Environ(), asCommand+"=1")
		var errs strings.Builder
		cmd.Stderr = &errs
		in, err := cmd.StdinPipe()
		qt.Assert(t, qt.IsNil(err))
		out, err := cmd.StdoutPipe()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(cmd.Start()))
		_, err = io.WriteString(in, begin)
		qt.Assert(t, qt.IsNil(err))
		lines := bufio.NewReader(out)
		answer, err := lines.ReadString('\n')
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Matches(answer, `{"jsonrpc":"2.0","id":1,"result":{.*"serverInfo":.*}\n`))
		_, err = io.WriteString(in, input)
		qt.Assert(t, qt.IsNil(err))
		in.Close()
		rest, err := io.ReadAll(lines)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(rest), ""))
		qt.Check(t, qt.Equals(cmd.Wait() == nil, errors == ""))
		qt.Check(t, qt.Matches(errs.String(), errors))
	}
}
