package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"golang.org/x/sys/unix"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
)

// Bounds of an answer, and of the warnings after it.
const (
	answerLines   = 300
	answerBytes   = 24 << 10
	answerColumns = "100"
	warningLines  = 20
	warningBytes  = 4 << 10
)

var beforeWarnings = regexp.MustCompile("(?m)^ttmem: ")

// commandLine returns the arguments of ttmem for the inputs of a call.
func (s *toolServer) commandLine(t *tool, inputs json.RawMessage) ([]string, error) {
	given, err := t.parse(inputs)
	if err != nil {
		return nil, err
	}
	args := []string{t.command}
	for _, name := range t.flags {
		for _, value := range given[name] {
			args = append(args, "--"+name+"="+value)
		}
	}
	var files []string
	for _, name := range t.args {
		values := given[name]
		if name == "file" && len(values) == 0 {
			values = []string{s.file}
		}
		for _, value := range values {
			if value != live {
				files = append(files, fileArgument(value))
			}
		}
	}
	// A service that is named takes the place of a tracer, which ttmem would begin itself.
	atMoments := len(given["from"])+len(given["to"])+len(given["within"]) > 0
	if slices.Contains(t.flags, "pid") && len(files) == 0 || t.command == "diff" && len(files) == 1 && len(given["pid"]) > 0 && !atMoments {
		args = append(args, "--"+flags.Socket+"="+s.socket)
		if slices.Contains(t.flags, "duration") && len(given["duration"]) == 0 {
			args = append(args, "--duration="+watchTime)
		}
	}
	return append(args, files...), nil
}

// fileArgument returns the argument for a file, which is neither a flag nor the beginning of a command to run.
func fileArgument(path string) string {
	if strings.HasPrefix(path, "-") {
		return "./" + path
	}
	return path
}

// parse returns the values of inputs as texts. An empty one is as none: agents fill in what they do not need.
func (t *tool) parse(inputs json.RawMessage) (map[string][]string, error) {
	var given map[string]any
	decoder := json.NewDecoder(bytes.NewReader(inputs))
	decoder.UseNumber()
	if err := decoder.Decode(&given); err != nil && len(inputs) > 0 {
		return nil, fmt.Errorf("%s takes an object of inputs: %s", t.command, strings.Join(t.inputs(), ", "))
	}
	texts := make(map[string][]string)
	for name, value := range given {
		if !slices.Contains(t.inputs(), name) {
			like := flags.Similar(name, t.inputs())
			if len(like) > 0 {
				return nil, fmt.Errorf("%s has no input %q: did you mean %s?", t.command, name, strings.Join(like, " or "))
			}
			return nil, fmt.Errorf("%s has no input %q: choose %s", t.command, name, strings.Join(t.inputs(), ", "))
		}
		list, isList := value.([]any)
		if !isList {
			list = []any{value}
		}
		if slices.Contains(t.args, name) && len(list) > 1 {
			return nil, fmt.Errorf("%s: %s takes one text", t.command, name)
		}
		for _, one := range list {
			switch one := one.(type) {
			case nil:
			case string, json.Number, bool:
				if text := fmt.Sprint(one); text != "" {
					texts[name] = append(texts[name], text)
				}
			default:
				return nil, fmt.Errorf("%s: %s takes a text, a number or a list of these", t.command, name)
			}
		}
	}
	return texts, nil
}

// run runs a command of ttmem in a process of its own, which ends with the call. It answers with what the command
// prints and then, apart from it, what it warns of.
func (s *toolServer) run(ctx context.Context, t *tool, args []string) *mcp.CallToolResult {
	select {
	case s.turns <- struct{}{}:
		defer func() { <-s.turns }()
	case <-ctx.Done():
		return answer(true, "cancelled")
	}
	out, warnings := &bounded{lines: answerLines, bytes: answerBytes}, &bounded{lines: warningLines, bytes: warningBytes}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...) // also once an installation has replaced the file
	cmd.Args[0] = "ttmem"
	cmd.Env = append(os.Environ(), "COLUMNS="+answerColumns, "LC_ALL=C.UTF-8")
	cmd.Stdout, cmd.Stderr = out, warnings
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread ends
	defer runtime.UnlockOSThread()
	err := cmd.Run()
	var exit *exec.ExitError
	said := beforeWarnings.ReplaceAllString(warnings.text(), "")
	if warnings.full {
		said += page.Count(uint64(warnings.leftOut()), "more warning") + "\n"
	}
	switch isJSON := slices.Contains(args, "--json=true"); {
	case ctx.Err() != nil:
		return answer(true, "cancelled")
	case err != nil && !errors.As(err, &exit):
		return answer(true, err.Error())
	case isJSON && out.full:
		return answer(true, fmt.Sprintf("the JSON of %s has %s, and an answer at most %s: %s, or ask for text", t.command, page.Bytes(out.all), page.Bytes(answerBytes), t.narrow()))
	case out.full:
		said += fmt.Sprintf("%s left out: an answer has at most %d lines and %s; %s", page.Count(uint64(out.leftOut()), "more line"), answerLines, page.Bytes(answerBytes), t.narrow())
	}
	return answer(err != nil, out.text(), said)
}

// narrow says how to get a shorter answer.
func (t *tool) narrow() string {
	inputs := slices.DeleteFunc(slices.Clone(narrowing), func(name string) bool { return !slices.Contains(t.flags, name) })
	if len(inputs) == 0 {
		return "ask for another page"
	}
	return "narrow it with " + strings.Join(inputs, ", ")
}

// answer returns the result of a call. Empty texts are left out.
func answer(isError bool, texts ...string) *mcp.CallToolResult {
	r := &mcp.CallToolResult{Content: []mcp.Content{}, IsError: isError}
	for _, text := range texts {
		if text = strings.TrimRight(text, "\n"); text != "" {
			r.Content = append(r.Content, &mcp.TextContent{Text: text})
		}
	}
	return r
}

// A bounded writer keeps the first whole lines of what is written, and counts all.
type bounded struct {
	lines, bytes int
	kept         []byte
	full         bool // no more is kept
	partial      bool // all does not end with a line's end
	all          uint64
	allLines     int
}

func (b *bounded) Write(p []byte) (int, error) {
	b.all += uint64(len(p))
	for line := range bytes.Lines(p) {
		if !b.partial {
			b.allLines++
		}
		b.partial = line[len(line)-1] != '\n'
		if b.full = b.full || b.allLines > b.lines || len(b.kept)+len(line) > b.bytes; !b.full {
			b.kept = append(b.kept, line...)
		}
	}
	return len(p), nil
}

// text returns what was kept: whole lines.
func (b *bounded) text() string {
	if b.full {
		return string(b.kept[:bytes.LastIndexByte(b.kept, '\n')+1])
	}
	return string(b.kept)
}

// leftOut returns the number of lines that were not kept.
func (b *bounded) leftOut() int { return b.allLines - strings.Count(b.text(), "\n") }
