// Package top is the live view of what is allocated: bars of chips, processes, and who
// holds most. The view is pure: it is told what there is, and which keys were pressed,
// and gives lines. It learns from a Source, and knows of no tracer.
package top

import (
	"errors"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"

	"ttmem/aggregate/name"
)

// Options say what a view looks at, and how. Source, NowNs and Interval are needed to
// run one.
type Options struct {
	Source Source
	// NowNs is CLOCK_MONOTONIC; it gives 0 where the time is that of the latest
	// event, as in a recording.
	NowNs func() uint64
	// Interval is the time between two looks.
	Interval time.Duration
	// Rules name components of the model; nil: the functions of the user's own code
	// do.
	Rules *name.Rules
	// Color allows colours, and ASCII nothing but ASCII.
	Color, ASCII bool
	// Output says that a command is traced, of whose output the Present tells.
	Output bool
	// Quit makes Run return when it is closed; nil: only keys do.
	Quit <-chan struct{}
}

func (o *Options) looker() *looker {
	return &looker{source: o.Source, sites: &sites{rules: o.Rules}, nowNs: o.NowNs}
}

// Run shows the view on a terminal until the user has enough.
func Run(in io.Reader, out io.Writer, o Options) error {
	l := o.looker()
	v := &view{
		looker: l, interval: o.Interval,
		model: &model{painter: painter{color: o.Color, ascii: o.ASCII}, sites: l.sites, output: o.Output},
	}
	p := tea.NewProgram(v, tea.WithInput(in), tea.WithOutput(out), tea.WithoutSignalHandler())
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case <-o.Quit:
			p.Quit()
		case <-done:
		}
	}()
	_, err := p.Run()
	if errors.Is(err, tea.ErrInterrupted) {
		err = nil
	}
	return err
}

// Once writes one frame of so many columns with the largest n holders; plain leaves out
// all that is for a terminal.
func Once(w io.Writer, o Options, columns, n int, plain bool) error {
	l := o.looker()
	m := &model{
		painter: painter{color: o.Color, ascii: o.ASCII, plain: plain},
		sites:   l.sites, once: true, width: max(columns, leastWidth),
	}
	m.limit = n
	m.show(l.look(time.Now()))
	var text strings.Builder
	for _, line := range m.frame() {
		text.WriteString(strings.TrimRight(line, " "))
		text.WriteByte('\n')
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// A view drives a model by what the terminal and the clock tell.
type view struct {
	*looker
	model    *model
	interval time.Duration
	looking  bool
}

type (
	tick struct{}
	seen struct{ *Present }
)

// Init begins to look.
func (v *view) Init() tea.Cmd { return tea.Batch(v.lookNow(), v.wait()) }

func (v *view) wait() tea.Cmd {
	return tea.Tick(v.interval, func(time.Time) tea.Msg { return tick{} })
}

// lookNow looks at the source beside what answers keys; one look at a time.
func (v *view) lookNow() tea.Cmd {
	if v.looking {
		return nil
	}
	v.looking = true
	return func() tea.Msg { return seen{v.look(time.Now())} }
}

// Update takes what happened.
func (v *view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		v.model.width, v.model.height = msg.Width, msg.Height
	case tick:
		return v, tea.Batch(v.lookNow(), v.wait())
	case seen:
		v.looking = false
		v.model.show(msg.Present)
	case tea.PasteMsg:
		v.model.paste(msg.Content)
	case tea.KeyPressMsg:
		switch v.model.press(msg.String()) {
		case quit:
			return v, tea.Quit
		case mark:
			v.source.Mark()
			return v, v.lookNow()
		case unmark:
			v.source.Unmark()
			return v, v.lookNow()
		case lookAgain:
			return v, v.lookNow()
		}
	}
	return v, nil
}

// View is what is to be on the terminal.
func (v *view) View() tea.View {
	screen := tea.NewView("")
	screen.AltScreen = true
	if v.model.width > 0 {
		screen.SetContent(strings.Join(v.model.frame(), "\n"))
	}
	return screen
}
