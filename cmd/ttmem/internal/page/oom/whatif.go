package oom

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"ttmem/aggregate/lives"
	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/tracer/event"
)

// A Change is a flag of a change that is replayed.
type Change struct {
	Flag, Usage string
	// Values complete the flag.
	Values []string
	// change makes the change from the flag's value, and returns the value as pages have it. They write it after before
	// and, if that is not "", before after.
	change        func(w *WhatIf, value string) (c replay.Change, word string, err error)
	before, after string
}

// Changes are the flags of all changes, in the order in which they are made.
var Changes = []Change{
	{"on", "replay on another `BOARD`, such as p150", replay.BoardNames(), onBoard, "on ", ""},
	{"set", "replay with another size, `NAME=SIZE`", page.Each(replay.Settings, func(name string) string { return name + "=" }), set, "with ", ""},
	{"without", "replay without what `LINE` allocates", nil, atLine("without", replay.Without), "without ", ""},
	{"move", "replay with `LINE:REGION` as its place", nil, move, "with ", ""},
	{"first", "replay with `LINE` before all others", nil, atLine("first", func(at replay.Sites) replay.Change { return replay.First(own(at)) }), "with ", " allocated first"},
	{"free", "replay with `LINE` freed after last use", nil, atLine("free", free), "with ", " freed after last use"},
	{"clear-program-cache-at", "replay with the cache cleared at `LINE`", nil, atLine("clear-program-cache-at", func(at replay.Sites) replay.Change { return replay.ClearCacheAt(at, cached) }), "with the program cache cleared at ", ""},
}

// A WhatIf is changes of the recorded program, and the same in words.
type WhatIf struct {
	replay.WhatIf
	Text string
	// lines are those of which an event has to be seen.
	lines []*lineSeen
}

type lineSeen struct {
	flag, line string
	seen       bool
}

// NewWhatIf returns the changes of flags, whose values it has by name; nil without any.
func NewWhatIf(values map[string][]string) (*WhatIf, error) {
	w := new(WhatIf)
	var words []string
	for i := range Changes {
		one := &Changes[i]
		var list []string
		for _, value := range values[one.Flag] {
			change, word, err := one.change(w, value)
			if err != nil {
				return nil, err
			}
			w.Changes, list = append(w.Changes, change), append(list, word)
		}
		if len(list) > 0 {
			words = append(words, one.before+strings.Join(list, ", ")+one.after)
		}
	}
	if len(words) == 0 {
		return nil, nil
	}
	w.Text = strings.Join(words, ", ")
	return w, nil
}

// title is the text at the beginning of a sentence.
func (w *WhatIf) title() string { return strings.ToUpper(w.Text[:1]) + w.Text[1:] }

// Missing returns an error for a line that was not seen in the replay.
func (w *WhatIf) Missing() error {
	if i := slices.IndexFunc(w.lines, func(l *lineSeen) bool { return !l.seen }); i >= 0 {
		return fmt.Errorf("--%s %s: no allocation there; `ttmem log FILE --kind alloc` lists them", w.lines[i].flag, w.lines[i].line)
	}
	return nil
}

var isLine = regexp.MustCompile(`.:\d+$`)

// at selects call stacks with a call in a line, which is the beginning of the flag's value.
func (w *WhatIf) at(flag, line, value string) (replay.Sites, error) {
	if !isLine.MatchString(line) {
		rest := strings.TrimPrefix(value, line)
		return nil, fmt.Errorf("--%s %s: give a file and the number of a line: --%s model.py:31%s", flag, value, flag, rest)
	}
	at, found := name.AtLine(line), &lineSeen{flag: flag, line: line}
	w.lines = append(w.lines, found)
	return func(s *event.Stack) bool {
		is := at(s)
		found.seen = found.seen || is
		return is
	}, nil
}

// atLine is a change whose value is a line.
func atLine(flag string, change func(replay.Sites) replay.Change) func(w *WhatIf, value string) (replay.Change, string, error) {
	return func(w *WhatIf, line string) (replay.Change, string, error) {
		at, err := w.at(flag, line, line)
		return change(at), line, err
	}
}

func move(w *WhatIf, value string) (c replay.Change, word string, err error) {
	i := max(strings.LastIndex(value, ":"), 0)
	to := slices.Index([]string{":" + event.DRAM.String(), ":" + event.L1.String()}, value[i:])
	if to < 0 {
		return c, "", fmt.Errorf("--move %s: give a line and its new region, DRAM or L1: --move model.py:31:DRAM", value)
	}
	at, err := w.at("move", value[:i], value)
	return replay.Move(own(at), event.Region(to)), value[:i] + " in " + value[i+1:], err
}

func set(_ *WhatIf, value string) (c replay.Change, word string, err error) {
	argument, text, _ := strings.Cut(value, "=")
	var size flags.Size
	if err := size.Set(text); err != nil || !slices.Contains(replay.Settings, argument) {
		return c, "", fmt.Errorf("--set %s: give one of %s, and a size such as 64KiB: --set l1_small_size=64KiB", value, strings.Join(replay.Settings, ", "))
	}
	return replay.Set(argument, uint64(size), 0), fmt.Sprintf("%s=%d", argument, size), nil
}

func onBoard(_ *WhatIf, value string) (c replay.Change, word string, err error) {
	board, err := replay.ParseBoard(value)
	if err != nil {
		return c, "", fmt.Errorf("--on %s: %w", value, err)
	}
	return replay.On(board), value, nil
}

// own selects the buffers of the program, not those that tt-metal makes beside them.
func own(at replay.Sites) replay.Sites {
	return func(s *event.Stack) bool { return at(s) && !name.ClassOf(s.Frames(), event.DRAM).Retained() }
}

// free frees the buffers of the program.
func free(at replay.Sites) replay.Change {
	selected := make(map[*event.Stack]bool)
	of := own(at)
	return replay.Free(func(_ int, b *lives.Life) bool {
		is, known := selected[b.Stack]
		if !known {
			is = of(b.Stack)
			selected[b.Stack] = is
		}
		return is
	})
}

// cached selects the buffers that end with the program cache.
func cached(s *event.Stack) bool {
	class := name.ClassOf(s.Frames(), event.DRAM)
	return class != nil && class.Cached
}
