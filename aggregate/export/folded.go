package export

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// Folded writes a value, normally the bytes at the peak, in Brendan Gregg's collapsed format, which
// flamegraph.pl, inferno and speedscope read: a line for each stack, with its frames from the
// outermost to the innermost between semicolons, and the value after a space. The first three
// frames are the process, the chip and the region. Stacks are folded (see name.Fold) unless Options has
// AllFrames. The lines are sorted. Stacks with the same
// text become one line, and stacks without any are left out.
//
// It returns the number of different stacks.
func Folded(w io.Writer, p *memory.Profile, o Options) (stacks int, err error) {
	value := ValueOf(cmp.Or(o.Value, "peak_space"))
	processes := processNames(p)
	lines := make(map[string]uint64)
	seen := make(distinct)
	samples := p.Samples
	for i := range samples {
		s := &samples[i]
		n := value.Of(s)
		if n == 0 {
			continue
		}
		seen.add(s.Stack)
		var b strings.Builder
		b.WriteString(foldedText(processes.process(s.PID)))
		b.WriteString(";" + deviceName(s.Device) + ";" + s.Region.String())
		list := Frames(s.Stack)
		if !o.AllFrames {
			list = name.Fold(list)
		}
		for i := range slices.Backward(list) {
			b.WriteByte(';')
			b.WriteString(foldedText(FrameText(&list[i])))
		}
		lines[b.String()] += n
	}
	out := bufio.NewWriter(w)
	for _, line := range slices.Sorted(maps.Keys(lines)) {
		fmt.Fprintf(out, "%s %d\n", line, lines[line])
	}
	return len(seen), out.Flush()
}

// foldedText returns a frame's text without semicolons and newlines. It also removes a number at
// the end, which flamegraph.pl would take for the first of two values of a difference.
func foldedText(s string) string {
	s = strings.TrimSpace(strings.ReplaceAll(event.Printable(s), ";", ":"))
	if s == "" {
		return unknown
	}
	if i := strings.LastIndexByte(s, ' '); i >= 0 && strings.Trim(s[i+1:], "0123456789.") == "" {
		s = s[:i] + "_" + s[i+1:]
	}
	return s
}
