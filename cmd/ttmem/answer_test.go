package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// A reply is the output of a command that answered a question.
type reply struct {
	output, said string
	status       string
}

// repliesOf returns the replies to questions about a recording.
func repliesOf(t *testing.T, path string, questions ...string) (first string, replies []reply, err error) {
	t.Helper()
	var out strings.Builder
	err = answerQuestions(path, strings.NewReader(strings.Join(questions, "\n")), &out)
	var one reply
	for rest := out.String(); rest != ""; {
		size := binary.LittleEndian.Uint32([]byte(rest[1:]))
		kind, text := rest[0], rest[5:5+size]
		switch rest = rest[5+size:]; kind {
		case frameOpened:
			first = text
		case frameOutput:
			one.output += text
		case frameSaid:
			one.said += text
		case frameEnd:
			one.status = text
			replies, one = append(replies, one), reply{}
		default:
			t.Fatalf("a frame of kind %q", kind)
		}
	}
	qt.Check(t, qt.Equals(one, reply{}))
	return first, replies, err
}

func TestAnswersAreThoseOfCommands(t *testing.T) {
	path := writeEvents(t, "late.ttmem", lateEvents())
	first, replies, err := repliesOf(t, path,
		`{"args":["peak","--json"]}`, `{"args":["log","--json"]}`, `{"args":["dump","--json","--at=nowhere"]}`, `{"args":["peak","--json"]}`,
		`{"args":["dump","--json","--at=peak"],"columns":true}`, `{"args":["dump","--json","--at=peak"]}`, `{"args":["no"]}`,
	)
	qt.Assert(t, qt.IsNil(err))
	var about opened
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(first), &about)))
	qt.Check(t, qt.Equals(about.Version, buildVersion()))
	qt.Assert(t, qt.HasLen(replies, 7))
	firstEvent, _, _ := strings.Cut(replies[1].output, "\n")
	qt.Check(t, qt.StringContains(firstEvent, fmt.Sprintf(`"time_ns":%d,`, about.FirstNs)))
	for i, args := range map[int][]string{0: {"peak", path, "--json"}, 1: {"log", path, "--json"}, 3: {"peak", path, "--json"}, 5: {"dump", path, "--json", "--at=peak"}} {
		out, _, status := runOnStreams(t, false, args)
		qt.Check(t, qt.Equals(replies[i], reply{output: out, status: fmt.Sprint(status)}))
	}
	qt.Check(t, qt.Equals(replies[2].output, ""))
	qt.Check(t, qt.StringContains(replies[2].said, "no mark nowhere"))
	qt.Check(t, qt.Equals(replies[2].status, "1"))
	qt.Check(t, qt.StringContains(replies[4].output, `"buffers":{"rows":`))
	qt.Check(t, qt.StringContains(replies[6].said, "unknown command"))
}

func TestNothingIsAnsweredWithoutARecording(t *testing.T) {
	noise := filepath.Join(t.TempDir(), "noise.ttmem")
	qt.Assert(t, qt.IsNil(os.WriteFile(noise, []byte("noise, and more of it"), 0o600)))
	path := writeEvents(t, "late.ttmem", lateEvents())
	for _, test := range []struct{ path, question, says string }{
		{noise + "none", "", "there is no such file: .*"},
		{noise, "", ".* is not a ttmem recording: .*"},
		{os.DevNull, "", ".* is not a file: .*"},
		{path, "peak", `no question: "peak"`},
		{path, `{"args":[]}`, `no question: .*`},
	} {
		_, replies, err := repliesOf(t, test.path, test.question)
		qt.Check(t, qt.ErrorMatches(err, test.says))
		qt.Check(t, qt.HasLen(replies, 0))
	}
}

// TestAnAnswerIsKeptUntilTheFileChanges: the same question is answered without reading the file again.
func TestAnAnswerIsKeptUntilTheFileChanges(t *testing.T) {
	path := writeEvents(t, "late.ttmem", lateEvents())
	in, questions := io.Pipe()
	answers, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- answerQuestions(path, in, out)
		out.Close()
	}()
	next := func() (text string) {
		for head := make([]byte, 5); ; {
			_, err := io.ReadFull(answers, head)
			qt.Assert(t, qt.IsNil(err))
			part := make([]byte, binary.LittleEndian.Uint32(head[1:]))
			_, err = io.ReadFull(answers, part)
			qt.Assert(t, qt.IsNil(err))
			if head[0] == frameEnd || head[0] == frameOpened {
				return text
			}
			text += string(part)
		}
	}
	get := func() string {
		_, err := io.WriteString(questions, `{"args":["peak","--json"]}`+"\n")
		qt.Assert(t, qt.IsNil(err))
		return next()
	}
	next()
	whole := get()
	qt.Check(t, qt.StringContains(whole, `"peaks":[{`))
	qt.Check(t, qt.Equals(get(), whole))
	qt.Assert(t, qt.IsNil(os.Truncate(path, 20)))
	qt.Check(t, qt.Not(qt.Equals(get(), whole)))
	questions.Close()
	qt.Check(t, qt.IsNil(<-ended))
}

func TestAnAnswerFromAnotherFileIsNotKept(t *testing.T) {
	for args, kept := range map[string]bool{
		"peak --json": true, "dump --at=peak": true, "diff other.ttmem --json": false, "dump --rules=a.rules": false,
	} {
		q := question{Args: strings.Fields(args)}
		qt.Check(t, qt.Equals(q.ofFile(), kept), qt.Commentf("%s", args))
	}
}
