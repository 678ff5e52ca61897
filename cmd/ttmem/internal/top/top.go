// Package top is the live view: bars of chips, processes and the call sites with the most memory.
// It reads a Source and does not depend on the tracer. The model is pure: it turns the content of
// the source and key presses into lines.
package top

import (
	"bytes"
	"errors"
	"io"
	"math"
	"os"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
)

// Options configure a view. Run needs Source, NowNs and Interval.
type Options struct {
	Source Source
	// NowNs returns CLOCK_MONOTONIC; 0 if the time is that of the latest event, as in a
	// recording.
	NowNs func() uint64
	// Interval is the time between two samples.
	Interval time.Duration
	// Rules map call stacks to components of the model; nil: the functions of the user's
	// own code are the components.
	Rules *name.Rules
	// Color allows colours. ASCII allows only ASCII.
	Color, ASCII bool
	// Recording is the source, if the source is a recording, and At its shown moment; otherwise
	// nil.
	Recording Recording
	At        memory.Point
	// Clock makes the view show the time by the wall clock; the zero value does not.
	Clock page.Clock
	// Output is true if the Present has output of a traced command.
	Output bool
	// Quit makes Run return when it is closed; with nil only keys do.
	Quit <-chan struct{}
}

func (o *Options) model(p page.Painter) *model {
	m := &model{painter: painter{p}, output: o.Output, clock: o.Clock, users: make(page.UserNames)}
	if o.Recording != nil {
		m.reel = &reel{Recording: o.Recording, at: o.At, losses: o.Recording.Losses()}
	}
	return m
}

func (o *Options) sampler() *sampler {
	return &sampler{source: o.Source, rules: o.Rules, nowNs: o.NowNs}
}

// Run shows the view on a terminal until the user quits.
func Run(in io.Reader, out *os.File, o Options) error {
	l := o.sampler()
	v := &view{
		sampler: l, interval: o.Interval,
		model: o.model(page.Painter{Color: o.Color, Attributes: true, ASCII: o.ASCII}),
	}
	p := tea.NewProgram(v, tea.WithInput(in), tea.WithOutput(terminal{out}), tea.WithoutSignalHandler())
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

// A terminal is redrawn whole whatever was there before.
//
// Bubble Tea scrolls parts of the screen by their margins, and sets the margins back to the
// screen's height. Where the terminal has grown meanwhile, these are those of the old height: all
// that is drawn afterwards stays above them.
type terminal struct{ *os.File }

// Write resets the margins wherever the screen is cleared.
func (t terminal) Write(p []byte) (int, error) {
	const clear = ansi.CursorHomePosition + ansi.EraseEntireScreen
	if _, err := t.File.Write(bytes.ReplaceAll(p, []byte(clear), []byte(resetMargins+clear))); err != nil {
		return 0, err
	}
	return len(p), nil
}

const resetMargins = "\x1b[r"

// Once writes one frame with this many columns and at most so many lines, or with rows 0 all lines.
// plain leaves out all escape sequences.
func Once(w io.Writer, o Options, columns, rows int, plain bool) error {
	l := o.sampler()
	m := o.model(page.Painter{Color: o.Color && !plain, Attributes: !plain, ASCII: o.ASCII})
	m.once, m.width, m.height = true, max(columns, leastWidth), max(rows, leastHeight)
	if rows == 0 {
		m.height = math.MaxInt32
	}
	m.show(l.sample(time.Now()))
	var text strings.Builder
	for _, line := range m.frame() {
		text.WriteString(strings.TrimRight(line, " "))
		text.WriteByte('\n')
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// A view passes events of the terminal and the clock to a model.
type view struct {
	*sampler
	model    *model
	interval time.Duration
	// sampling is true while a sample is made, and outdated if another one is to follow.
	sampling, outdated bool
	// sought is the moment that is being read; nil if there is none.
	sought *memory.Point
}

type (
	tick struct{}
	seen struct{ *Present }
	read struct{ error }
)

// Init starts sampling.
func (v *view) Init() tea.Cmd {
	if v.model.reel != nil {
		return v.sampleNow() // only another moment changes the content
	}
	return tea.Batch(v.sampleNow(), v.wait())
}

func (v *view) wait() tea.Cmd {
	return tea.Tick(v.interval, func(time.Time) tea.Msg { return tick{} })
}

// sampleNow samples the source in the background, so that keys still work. There is one sample at
// a time, and another one follows if more has changed meanwhile.
func (v *view) sampleNow() tea.Cmd {
	if v.sampling {
		v.outdated = true
		return nil
	}
	v.sampling, v.outdated = true, false
	return func() tea.Msg { return seen{v.sample(time.Now())} }
}

// seekNow reads the chosen moment in the background, one moment at a time: while a key is held
// down, the moments between are left out.
func (v *view) seekNow() tea.Cmd {
	if v.sought != nil {
		return nil
	}
	at := v.model.reel.at
	v.sought = &at
	return func() tea.Msg { return read{v.model.reel.Seek(at)} }
}

// Update handles an event.
func (v *view) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		v.model.width, v.model.height = msg.Width, msg.Height
	case tick:
		if v.sampling {
			return v, v.wait()
		}
		return v, tea.Batch(v.sampleNow(), v.wait())
	case seen:
		v.sampling = false
		v.model.show(msg.Present)
		v.source.ShowOwners(v.model.isByOwner())
		if v.outdated {
			return v, v.sampleNow()
		}
	case read:
		at := *v.sought
		v.sought = nil
		if msg.error != nil {
			v.model.answer = msg.Error()
		} else if at != v.model.reel.at {
			return v, tea.Batch(v.seekNow(), v.sampleNow())
		}
		return v, v.sampleNow()
	case tea.PasteMsg:
		v.model.paste(msg.Content)
	case tea.KeyPressMsg:
		return v, v.do(v.model.press(msg.String()))
	case tea.MouseClickMsg:
		if msg.Button == tea.MouseLeft {
			return v, v.do(v.model.click(msg.X, msg.Y))
		}
	case tea.MouseMotionMsg:
		if msg.Button == tea.MouseLeft {
			return v, v.do(v.model.drag(msg.X, msg.Y))
		}
	case tea.MouseWheelMsg:
		const lines = 3
		switch msg.Button {
		case tea.MouseWheelUp:
			return v, v.do(v.model.wheel(msg.Y, -lines))
		case tea.MouseWheelDown:
			return v, v.do(v.model.wheel(msg.Y, lines))
		}
	}
	return v, nil
}

// do executes a request of a key or the mouse.
func (v *view) do(r request) tea.Cmd {
	switch r {
	case nothing:
		return nil
	case quit:
		return tea.Quit
	case mark:
		v.source.Mark()
	case unmark:
		v.source.Unmark()
	case seek:
		return v.seekNow()
	}
	return v.sampleNow()
}

// View returns the content of the terminal.
func (v *view) View() tea.View {
	screen := tea.NewView("")
	screen.AltScreen = true
	screen.MouseMode = tea.MouseModeCellMotion
	if v.model.width > 0 {
		screen.SetContent(strings.Join(v.model.frame(), "\n"))
	}
	return screen
}
