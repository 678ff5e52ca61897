package source

import (
	"errors"
	"fmt"
	"strings"

	"ttmem/aggregate/moment"
	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/page"
)

// ParseMoment reads the value of a flag.
func ParseMoment(flag, text string) (moment.Moment, error) {
	m, err := moment.Parse(text)
	if err != nil {
		err = fmt.Errorf("--%s %w", flag, err)
	}
	return m, err
}

// momentOf reads a moment of a file or, without one, of running processes.
func momentOf(file, flag, text string, live moment.Kind) (moment.Moment, error) {
	m, err := ParseMoment(flag, text)
	if normally := m.AtEnd() && flag != "from" || m.Kind == moment.Begin && flag == "from"; err == nil && file == "" && !normally && m.Kind != live {
		return m, fmt.Errorf("--%s is a moment of a recording: leave it out for running processes", flag)
	}
	return m, err
}

// ParseAt reads the value of --at.
func ParseAt(file, text string) (moment.Moment, error) {
	at, err := momentOf(file, "at", text, moment.End)
	at.Last = true
	if err == nil && at.Kind == moment.Unfreed {
		return at, fmt.Errorf("--at left: only diff takes left, the unfreed memory; for a mark of this name, give mark:left")
	}
	return at, err
}

// ParseSpan reads the values of --from, --to and --within; "" is the beginning or the end. Without a file,
// live is a kind of moment that running processes have, besides the beginning and the end.
func ParseSpan(file string, text flags.Span, live moment.Kind) (s moment.Span, err error) {
	s = moment.Whole
	if text.From != "" {
		s.From, err = momentOf(file, "from", text.From, live)
	}
	if text.To != "" && err == nil {
		s.To, err = momentOf(file, "to", text.To, live)
	}
	s.To.Last = true
	for flag, of := range map[string]moment.Moment{"from": s.From, "to": s.To} {
		if err == nil && of.Kind == moment.Story {
			err = fmt.Errorf("--%s story: only --at takes story; a mark of this name is mark:story", flag)
		}
	}
	if err != nil || text.Within == "" {
		return s, err
	}
	if file == "" {
		return s, errors.New("--within needs a recording: `ttmem run -o FILE -- COMMAND` makes one")
	}
	s.Within, s.Nth, err = moment.CutNumber(text.Within)
	if err != nil {
		return s, fmt.Errorf("--within %w", err)
	}
	return s, nil
}

// SpanOf returns the time of a span for a document.
func SpanOf(s *moment.Span, list moment.Intervals) page.Span {
	return page.Span{FromNs: list.Times()[0].FromNs, ToNs: list.End().TimeNs, Within: s.Call()}
}

// MarkHint says how to set a mark.
const MarkHint = "; `ttmem mark NAME` sets one while a program runs"

// Flagged returns an error about a moment or a span with the flags that chose it, and the commands that help.
func Flagged(err error, name string) error {
	var empty *moment.EmptyError
	var mark *moment.NoMarkError
	var earlier *moment.EarlierPeaksError
	var no *moment.NotCalledError
	switch {
	case errors.As(err, &empty):
		return fmt.Errorf("--to %s must be later than --from %s", empty.To, empty.From)
	case errors.As(err, &mark) && mark.None:
		return fmt.Errorf("%w%s", err, MarkHint)
	case errors.As(err, &earlier):
		return fmt.Errorf("%w; `ttmem peak %s` lists its call sites", err, name)
	case !errors.As(err, &no):
		return err
	}
	switch like := flags.Similar(no.Within, no.Functions); {
	case no.Ran > 0:
		return fmt.Errorf("--%w", err)
	case len(like) > 0:
		return fmt.Errorf("--%w: did you mean %s?", err, strings.Join(like, " or "))
	}
	return fmt.Errorf("--%w; `ttmem phases %s` lists functions that did", err, name)
}
