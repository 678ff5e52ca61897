package main

import (
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/tracer/event"
)

func TestLeaksSaysWhatIsWrong(t *testing.T) {
	file := writeEvents(t, "marked.ttmem", []event.Event{
		{Kind: event.Mark, Cause: "step 5"}, {Kind: event.Mark, Cause: "step 15"},
	})
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{file, "--from", "x"}, `no mark x in .*marked.ttmem: there are step 5, step 15`},
		{[]string{file, "--from", ""}, `--from is empty: .*`},
		{[]string{file, "--from", "2.5s"}, `.* ends before 2.5s: its last event is at .*`},
		{[]string{file, "--from", "step 15", "--to", "step 5"}, `--to step 5 must be later than --from step 15`},
		{[]string{file, "--by", "x"}, `--by x: choose stack, .*`},
		{[]string{file, "--region", "CB"}, `--region CB: circular buffers do not leak; .*`},
		{[]string{file, "--fail-above", "x"}, `.*not a size: .*`},
		{[]string{file, "--suppress", file + "-none"}, `--suppress .*-none: no such file or directory; .*`},
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"leaks"}, test.args...)...), test.want), qt.Commentf("%q", test.args))
	}
}

func TestMarkSaysWhatIsWrong(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, `missing name: ttmem mark warm`},
		{[]string{"epoch", "3"}, `one name at a time: quote it .* ttmem mark "epoch 3"`},
		{[]string{"warm", "--socket", filepath.Join(t.TempDir(), "none")}, `no ttmem service.*`},
	} {
		qt.Check(t, qt.ErrorMatches(execute(append([]string{"mark"}, test.args...)...), test.want), qt.Commentf("%q", test.args))
	}
}
